"""What counts as right."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.rewards.catalog import REWARDS
from stages.engine.rewards.config import RewardName
from stages.engine.rewards.rules import exact, last_integer
from stages.errors import UserError


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("7", "7"),
        ("The answer is 7.", "7"),
        ("3 + 4 = 7", "7"),
        ("-7", "-7"),
        ("\u22127", "-7"),
        ("3 - 10 = -7", "-7"),
        ("x=-7", "-7"),
        ("(-7)", "-7"),
        ("**-7**", "-7"),
        ("3-7", "7"),
        ("x-7", "7"),
        ("(1)-7", "7"),
        ("3 - 7", "7"),
        ("007", "7"),
        ("-0", "0"),
        ("$7", "7"),
        ("7 (or 7.0)", "7"),
        ("1,234", "234"),
        ("9" * 5000 + " 7", "7"),
        ("9" * 5000, "9" * 5000),
        ("7", " 7\n"),
    ],
)
def test_the_last_integer_decides(response: str, answer: str) -> None:
    assert last_integer(response, answer) == 1.0


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("", "7"),
        ("seven", "7"),
        ("-7", "7"),
        ("7", "-7"),
        ("7 is not 8", "7"),
        ("77", "7"),
        ("3.7", "7"),
        ("7.5", "7"),
        ("1,234", "1234"),
        ("-73", "73"),
        ("\u0667", "7"),  # an Arabic seven
    ],
)
def test_anything_else_is_wrong(response: str, answer: str) -> None:
    assert last_integer(response, answer) == 0.0


@given(st.integers(), st.integers(), st.text(st.characters(exclude_categories=["Nd"]), max_size=10))
def test_an_integer_after_any_text_is_compared_by_value(number: int, answer: int, before: str) -> None:
    assert last_integer(f"{before} {number}", str(answer)) == float(number == answer)


@pytest.mark.parametrize("answer", ["", "seven", "7.5", "1/2", "7 8"])
def test_an_answer_that_is_no_integer_is_an_error(answer: str) -> None:
    with pytest.raises(UserError, match="needs an integer as the answer"):
        last_integer("7", answer)


def test_the_strict_rule_wants_the_whole_reply() -> None:
    assert exact(" 7\n", "7") == 1.0
    assert exact("7.", "7") == 0.0
    assert exact("The answer is 7", "7") == 0.0
    assert exact("", "7") == 0.0


def test_the_table_has_every_name_of_the_settings() -> None:
    assert set(REWARDS) == set(get_args(RewardName))
    assert all(isinstance(reward("7", "7"), float) for reward in REWARDS.values())
