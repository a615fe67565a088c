"""Losses of a reward model against values worked by hand and differences of finite steps."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.objectives.reward_model import bradley_terry, centering

CHOSEN = np.array([0.0, 2.0, -1.0, 0.3, 40.0])
REJECTED = np.array([0.0, 1.0, 0.5, 0.3, -50.0])
MARGINS = np.array([0.0, 0.5, 0.0, 1.0, 0.25])

Pairs = Callable[[Float[Array, " P"], Float[Array, " P"]], Float[Array, " P"]]


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0.0, -x)


def test_a_preference_costs_what_the_sigmoid_of_the_lead_says() -> None:
    losses = bradley_terry(jnp.asarray(CHOSEN), jnp.asarray(REJECTED), jnp.asarray(MARGINS))
    np.testing.assert_allclose(losses, -log_sigmoid(CHOSEN - REJECTED - MARGINS), rtol=1e-6, atol=1e-12)
    # log 2 at a tie; log(1 + e^-0.5); log(1 + e^1.5); log(1 + e); next to nothing.
    np.testing.assert_allclose(losses[:4], [0.693147, 0.474077, 1.701413, 1.313262], atol=1e-6)


def test_rewards_far_apart_overflow_in_neither_direction() -> None:
    far = jnp.array([-1e4, 1e4])
    losses, slopes = jax.value_and_grad(lambda c: bradley_terry(c, -far, jnp.zeros(2)).sum())(far)
    np.testing.assert_allclose(losses, 2e4)
    np.testing.assert_allclose(slopes, [-1.0, 0.0])


def test_rewards_whose_sum_is_not_zero_cost_its_square() -> None:
    losses = centering(jnp.asarray(CHOSEN), jnp.asarray(REJECTED))
    np.testing.assert_allclose(losses, [0.0, 9.0, 0.25, 0.36, 100.0], rtol=1e-6)


@pytest.mark.parametrize("loss", [lambda c, r: bradley_terry(c, r, jnp.asarray(MARGINS)), centering])
def test_gradients_are_those_of_finite_steps(loss: Pairs) -> None:
    with jax.enable_x64(True):
        given = (jnp.asarray(CHOSEN, jnp.float64), jnp.asarray(REJECTED, jnp.float64))
        found = jax.grad(lambda c, r: loss(c, r).sum(), argnums=(0, 1))(*given)
        step = 1e-6
        for number, gradient in enumerate(found):
            up, down = (
                loss(*(side + sign * step * (number == at) for at, side in enumerate(given))) for sign in (1, -1)
            )
            np.testing.assert_allclose(gradient, (up - down) / (2 * step), atol=1e-6)


def test_gradients_of_a_preference_are_the_probability_of_the_other_one() -> None:
    gradient = jax.grad(lambda c: bradley_terry(c, jnp.asarray(REJECTED), jnp.asarray(MARGINS)).sum())
    lead = CHOSEN - REJECTED - MARGINS
    np.testing.assert_allclose(gradient(jnp.asarray(CHOSEN)), -1 / (1 + np.exp(lead)), atol=1e-6)
