from flows.pause_key import pause_key


def test_a_gate_asks_again_about_results_that_were_made_again() -> None:
    asked = pause_key("ab" * 32, {"sft": "1", "score": "2"})
    assert asked == pause_key("ab" * 32, {"score": "2", "sft": "1"})
    assert asked != pause_key("ab" * 32, {"sft": "1", "score": "3"})
    assert asked != pause_key("cd" * 32, {"sft": "1", "score": "2"})
