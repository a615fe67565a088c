"""Losses of tokens to one loss."""

from collections.abc import Callable
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.engine.objectives.aggregation import AGGREGATIONS, sequence_mean_token_mean, sequence_sums, token_mean
from stages.engine.objectives.masking import ratio
from stages.grpo.config import GrpoConfig

TOLERANCE = 1e-5
Oracle = Callable[[str, str], np.ndarray]
"""Name of an entry and a field to its numbers."""
LOSSES = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
MASK = jnp.array([[True, True, False], [True, True, True], [False, False, False]])


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_values_are_those_of_the_oracle(oracle: Oracle, name: str) -> None:
    losses, mask = (
        jnp.asarray(oracle("aggregation", "loss")),
        jnp.array(oracle("aggregation", "mask"), jnp.bool_),
    )
    np.testing.assert_allclose(ratio(*AGGREGATIONS[name](losses, mask)), oracle("aggregation", name), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "total", "denominator"),
    [
        ("token_mean", 18.0, 5.0),
        ("sequence_mean_token_mean", 6.5, 2.0),
        ("sequence_mean_token_sum", 18.0, 2.0),
    ],
)
def test_a_padded_row_leaves_sum_and_denominator_alone(name: str, total: float, denominator: float) -> None:
    assert [float(part) for part in AGGREGATIONS[name](LOSSES, MASK)] == [total, denominator]


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_nothing_unmasked_gives_zero_over_zero_and_no_gradient(name: str) -> None:
    mask = jnp.zeros_like(MASK)
    assert [float(part) for part in AGGREGATIONS[name](LOSSES, mask)] == [0.0, 0.0]
    gradient = jax.grad(lambda losses: ratio(*AGGREGATIONS[name](losses, mask)))(LOSSES)
    assert not gradient.any()


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_parts_of_a_batch_add_up_to_the_whole(name: str) -> None:
    aggregate = AGGREGATIONS[name]
    parts = [aggregate(LOSSES[rows], MASK[rows]) for rows in (slice(0, 1), slice(1, 3))]
    whole = aggregate(LOSSES, MASK)
    np.testing.assert_allclose(sum(total for total, _ in parts), whole[0], rtol=1e-6)
    np.testing.assert_allclose(sum(count for _, count in parts), whole[1])


def test_gradients_weigh_tokens_or_sequences() -> None:
    by_token = jax.grad(lambda losses: ratio(*token_mean(losses, MASK)))(LOSSES)
    np.testing.assert_allclose(by_token, MASK / 5, rtol=1e-6)
    by_sequence = jax.grad(lambda losses: ratio(*sequence_mean_token_mean(losses, MASK)))(LOSSES)
    np.testing.assert_allclose(by_sequence, MASK / 2 / np.array([[2], [3], [1]]), rtol=1e-6)


def test_sequences_that_share_a_row_are_summed_apart() -> None:
    values = jnp.array([[1.0, 2.0, 4.0, 8.0, jnp.nan], [16.0, jnp.inf, 32.0, 0.5, 64.0]])
    sequences = jnp.array([[0, 0, 2, 1, 0], [3, 0, 0, 3, 1]])
    mask = jnp.array([[True, True, True, True, False], [True, False, True, True, True]])
    found = sequence_sums(values, sequences, mask, 4)
    np.testing.assert_array_equal(found, [[3.0, 8.0, 4.0, 0.0], [32.0, 64.0, 0.0, 16.5]])
    weights = jnp.arange(8.0).reshape(2, 4)
    gradient = jax.grad(lambda values: (weights * sequence_sums(values, sequences, mask, 4)).sum())(values)
    np.testing.assert_array_equal(gradient, [[0, 0, 2, 1, 0], [7, 0, 4, 7, 5]])


def test_the_table_has_every_name_of_the_settings() -> None:
    assert set(AGGREGATIONS) == set(get_args(GrpoConfig.model_fields["aggregation"].annotation))
