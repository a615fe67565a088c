"""Scores a response by a reward."""

from stages.engine.rewards.catalog import Reward
from stages.errors import UserError


def score(reward: Reward, response: str, answer: str, row: str) -> float:
    """The reward of a response.

    Args:
        reward: how it is scored.
        response: its text.
        answer: the wanted one.
        row: id of the row of the dataset that the answer is from.

    Raises:
        UserError: the reward cannot judge by such an answer; the message names the row.
    """
    try:
        return reward(response, answer)
    except UserError as error:
        raise UserError(f"row '{row}': {error}") from error
