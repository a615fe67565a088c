"""Advantages within a group."""

from collections.abc import Callable
from typing import get_args

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.objectives.advantages import (
    ADVANTAGES,
    dr_grpo_advantages,
    grpo_advantages,
    rloo_advantages,
    tied_groups,
)
from stages.grpo.config import GrpoConfig

TOLERANCE = 1e-5
Oracle = Callable[[str, str], np.ndarray]
"""Name of an entry and a field to its numbers."""


@pytest.mark.parametrize(("entry_name", "name"), [("rloo", "rloo"), ("grpo_ddof1", "grpo"), ("grpo_ddof1_g4", "grpo")])
def test_values_are_those_of_the_oracles(oracle: Oracle, entry_name: str, name: str) -> None:
    rewards = jnp.asarray(oracle(entry_name, "rewards")).reshape(-1, int(oracle(entry_name, "group_size")))
    np.testing.assert_allclose(ADVANTAGES[name](rewards).ravel(), oracle(entry_name, "advantages"), atol=TOLERANCE)


def test_fractions_are_worked_by_hand() -> None:
    rewards = jnp.array([[0.7, 0.1], [0.25, 0.75]])
    np.testing.assert_allclose(dr_grpo_advantages(rewards), [[0.3, -0.3], [-0.25, 0.25]], atol=TOLERANCE)
    np.testing.assert_allclose(rloo_advantages(rewards), [[0.6, -0.6], [-0.5, 0.5]], atol=TOLERANCE)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(grpo_advantages(rewards), [[half, -half], [-half, half]], atol=TOLERANCE)
    np.testing.assert_allclose(grpo_advantages(jnp.array([[1.0, 2.0, 3.0]])), [[-1, 0, 1]], atol=TOLERANCE)


@pytest.mark.parametrize("name", ADVANTAGES)
@given(reward=st.floats(-100, 100, width=32), group_size=st.sampled_from([1, 7]))
def test_a_tied_group_has_exactly_no_advantage(name: str, reward: float, group_size: int) -> None:
    rewards = jnp.full((2, group_size), reward, jnp.float32)
    assert tied_groups(rewards).all()
    assert not ADVANTAGES[name](rewards).any()


def test_groups_are_tied_only_if_all_their_rewards_are_equal() -> None:
    assert tied_groups(jnp.array([[0.1, 0.1, 0.1], [0.1, 0.1, 0.2], [0.0, -0.0, 0.0]])).tolist() == [True, False, True]


def test_a_group_is_compared_with_itself_only() -> None:
    rewards = jnp.array([[0.0, 1.0], [0.0, 50.0]])
    for advantages in ADVANTAGES.values():
        np.testing.assert_array_equal(advantages(rewards)[:1], advantages(rewards[:1]))


def test_rewards_in_integers_are_refused() -> None:
    for advantages in ADVANTAGES.values():
        with pytest.raises(TypeError):
            advantages(jnp.array([[0, 1]]))


def test_the_table_has_every_name_of_the_settings() -> None:
    assert set(ADVANTAGES) == set(get_args(GrpoConfig.model_fields["advantages"].annotation))
