"""What a judge says, and what follows from it."""

import pytest

from stages.engine.data.records import Message
from stages.evaluation.judge import question, verdict, win


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("[[A]]", 1.0),
        ("Reply B is wrong.\n[[A]]\n", 1.0),
        ("[[B]]", 0.0),
        ("[[C]]", 0.5),
        ("At first [[A]], but then: [[B]]", 0.0),
        ("A", None),
        ("[[D]]", None),
        ("", None),
    ],
)
def test_the_last_verdict_counts(answer: str, score: float | None) -> None:
    assert verdict(answer) == score


@pytest.mark.parametrize(
    ("as_first", "as_second", "share"),
    [
        (1.0, 0.0, 1.0),
        (0.0, 1.0, 0.0),
        (1.0, 1.0, 0.5),
        (0.0, 0.0, 0.5),
        (0.5, 0.5, 0.5),
        (1.0, 0.5, 0.75),
        (None, 0.0, 0.75),
        (None, None, 0.5),
    ],
)
def test_a_judge_who_goes_by_the_place_makes_no_winner(
    as_first: float | None, as_second: float | None, share: float
) -> None:
    assert win(as_first, as_second) == share


def test_both_replies_stand_in_the_question_in_their_order() -> None:
    (message,) = question([Message(role="user", content="2 {and} 2?")], "four {", "five")
    text = message.content
    assert text.index("user: 2 {and} 2?") < text.index("Reply A:\nfour {") < text.index("Reply B:\nfive")
