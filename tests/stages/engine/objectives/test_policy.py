"""The clipped surrogate."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.objectives.aggregation import AGGREGATIONS
from stages.engine.objectives.masking import ratio
from stages.engine.objectives.policy import clipped_surrogate, log_ratio

TOLERANCE = 1e-5
Oracle = Callable[[str, str], np.ndarray]
"""Name of an entry and a field to its numbers."""
Arrays = tuple[Float[Array, "B T"], Float[Array, "B T"], Float[Array, "B T"], Float[Array, "B 1"]]


@pytest.fixture
def arrays(oracle: Oracle) -> Arrays:
    logprobs, old, mask, advantages = (
        jnp.asarray(oracle("clipped_surrogate", name)) for name in ("logp", "old", "mask", "advantages")
    )
    return logprobs, old, mask, advantages[:, None]


def test_every_token_has_the_oracles_loss(oracle: Oracle, arrays: Arrays) -> None:
    logprobs, old, mask, advantages = arrays
    losses, _ = clipped_surrogate(logprobs, old, advantages, 0.2, 0.2)
    expected = oracle("clipped_surrogate", "per_token")  # NaN where masked
    np.testing.assert_allclose(losses[mask > 0], expected[np.asarray(mask) > 0], atol=TOLERANCE)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregated_losses_are_those_of_the_oracle(oracle: Oracle, arrays: Arrays, name: str) -> None:
    logprobs, old, mask, advantages = arrays
    losses, _ = clipped_surrogate(logprobs, old, advantages, 0.2, 0.2)
    np.testing.assert_allclose(
        ratio(*AGGREGATIONS[name](losses, mask > 0)), oracle("clipped_surrogate", name), atol=TOLERANCE
    )


@pytest.mark.parametrize("name", ["token_mean", "sequence_mean_token_mean"])
def test_a_higher_upper_clip_gives_the_oracles_loss(oracle: Oracle, arrays: Arrays, name: str) -> None:
    logprobs, old, mask, advantages = arrays
    losses, _ = clipped_surrogate(logprobs, old, advantages, 0.2, 0.28)
    expected = oracle("clipped_surrogate", f"clip_high_028.{name}")
    np.testing.assert_allclose(ratio(*AGGREGATIONS[name](losses, mask > 0)), expected, atol=TOLERANCE)


def test_rows_of_different_lengths_give_the_packed_oracles_loss(oracle: Oracle) -> None:
    logprobs = jnp.array([[-0.5, -1.0, -2.0], [-0.7, 0.0, 0.0]])
    mask = jnp.array([[True, True, True], [True, False, False]])
    losses, _ = clipped_surrogate(logprobs, logprobs, jnp.array([[1.5], [3.0]]), 0.2, 0.2)
    loss = ratio(*AGGREGATIONS["sequence_mean_token_mean"](losses, mask))
    np.testing.assert_allclose(loss, oracle("packed_equals_unpacked", "loss"), atol=TOLERANCE)


def test_gradient_and_clipping_follow_the_sign_of_the_advantage() -> None:
    log_ratios = jnp.log(jnp.array([[0.5, 1.0, 1.5], [0.5, 1.0, 1.5]]))
    advantages = jnp.array([[2.0], [-2.0]])
    old = jnp.full((2, 3), -3.0)

    def total(logprobs: Float[Array, "B T"]) -> Float[Array, ""]:
        return clipped_surrogate(logprobs, old, advantages, 0.2, 0.2)[0].sum()

    losses, clipped = clipped_surrogate(log_ratios + old, old, advantages, 0.2, 0.2)
    np.testing.assert_allclose(losses, [[-1.0, -2.0, -2.4], [1.6, 2.0, 3.0]], rtol=1e-5)
    assert clipped.tolist() == [[False, False, True], [True, False, False]]
    gradient = jax.grad(total)(log_ratios + old)
    np.testing.assert_allclose(gradient, [[-1.0, -2.0, 0.0], [0.0, 2.0, 3.0]], rtol=1e-5)


def test_a_log_ratio_is_limited_so_that_nothing_overflows() -> None:
    far = jnp.array([[0.0, -500.0]])
    assert log_ratio(far, -500.0 - far).tolist() == [[20.0, -20.0]]
    losses, _ = clipped_surrogate(far, -500.0 - far, jnp.array([[-1.0]]), 0.2, 0.2)
    np.testing.assert_allclose(losses, [[np.exp(20.0), 0.8]], rtol=1e-5)
    gradient = jax.grad(lambda x: clipped_surrogate(x, -500.0 - far, jnp.array([[-1.0]]), 0.2, 0.2)[0].sum())(far)
    assert gradient.tolist() == [[0.0, 0.0]]
