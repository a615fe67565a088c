from pathlib import Path

from stages.store.runs import RunStage
from tasks.state_names import end_name, end_text, flow_run_name, task_run_name


def test_a_gate_does_not_pass_and_anything_else_fails() -> None:
    assert end_name(RunStage(id="g", kind="gate", outcome="failed")) == "NotPassed"
    assert end_name(RunStage(id="a", kind="set_alias", outcome="failed")) == "Failed"
    assert end_name(RunStage(id="a", kind="set_alias", outcome="done")) == "Done"


def test_the_text_of_an_end_is_its_message_and_numbers_or_what_was_planned() -> None:
    node = RunStage(id="g", kind="gate", reason="total > 9", message="not met", lines=("failed: total > 9",))
    assert end_text(node) == "not met\nfailed: total > 9"
    assert end_text(RunStage(id="g", kind="gate", reason="total > 9")) == "total > 9"


def test_runs_and_their_nodes_have_names_that_people_know() -> None:
    assert flow_run_name(Path("/data/sweep.yaml"), None) == "sweep"
    assert flow_run_name(Path("/data/sweep.yaml"), "approved") == "sweep-approved"
    assert (task_run_name("sft", "41c2ab12ff"), task_run_name("gate", None)) == ("sft · 41c2ab12", "gate")
