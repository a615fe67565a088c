import pytest

from stages.engine.rewards.rules import last_integer
from stages.engine.rewards.scoring import score
from stages.errors import UserError


def test_a_response_is_scored() -> None:
    assert score(last_integer, "It is 7.", "7", "row-1") == 1.0


def test_an_answer_that_no_reward_can_judge_by_is_told_with_its_row() -> None:
    with pytest.raises(UserError, match="row 'row-1': the reward last_integer needs an integer"):
        score(last_integer, "It is 7.", "x", "row-1")
