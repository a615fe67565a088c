"""Which groups are learned from."""

import numpy as np
import pytest

from stages.engine.rl.filtering import mixed_groups
from stages.errors import UserError


def test_groups_whose_rewards_differ_are_kept_and_tied_ones_are_not() -> None:
    rewards = np.array([[0, 1, 0], [1, 1, 1], [0, 0, 0], [0.3, 0.3, 0.7]], np.float32)
    assert mixed_groups(rewards).tolist() == [True, False, False, True]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_an_error_that_names_its_prompt_and_sample(bad: float) -> None:
    rewards = np.array([[0, 1], [1, bad], [1, 1]], np.float32)
    with pytest.raises(UserError, match=f"the reward of sample 1 to prompt 1 of this step is {bad}"):
        mixed_groups(rewards)
