"""Estimates of the KL divergence."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.objectives.kl import kl_k1, kl_k2, kl_k3

TOLERANCE = 1e-5
Oracle = Callable[[str, str], np.ndarray]
"""Name of an entry and a field to its numbers."""
Estimator = Callable[[Float[Array, "*B"], Float[Array, "*B"]], Float[Array, "*B"]]


@pytest.mark.parametrize(("name", "estimate"), [("k1", kl_k1), ("k2", kl_k2), ("k3", kl_k3)])
def test_values_are_those_of_the_oracle(oracle: Oracle, name: str, estimate: Estimator) -> None:
    reference = jnp.array([-1.0, -2.0, -3.0])
    policy = reference + jnp.asarray(oracle("kl", "p_minus_q"))
    np.testing.assert_allclose(estimate(policy, reference), oracle("kl", name), atol=TOLERANCE)


@pytest.mark.parametrize("estimate", [kl_k1, kl_k3])
def test_the_mean_over_the_policys_tokens_is_the_divergence(estimate: Estimator) -> None:
    policy, reference = jnp.array([0.2, 0.3, 0.5]), jnp.array([0.6, 0.3, 0.1])
    exact = (policy * jnp.log(policy / reference)).sum()
    mean = (policy * estimate(jnp.log(policy), jnp.log(reference))).sum()
    np.testing.assert_allclose(mean, exact, rtol=1e-5)


def test_gradients_are_worked_by_hand() -> None:
    reference, policy = jnp.array([-1.0, -1.0, -1.0]), jnp.array([-1.5, -1.0, -0.3])
    for estimate, expected in [
        (kl_k1, [1.0, 1.0, 1.0]),
        (kl_k2, [-0.5, 0.0, 0.7]),
        (kl_k3, [1 - np.exp(0.5), 0.0, 1 - np.exp(-0.7)]),
    ]:
        gradient = jax.grad(lambda p, f=estimate: f(p, reference).sum())(policy)
        np.testing.assert_allclose(gradient, expected, atol=TOLERANCE)


def test_k3_does_not_overflow_and_keeps_its_precision_near_zero() -> None:
    far = kl_k3(jnp.array([-500.0, 0.0]), jnp.array([0.0, -500.0]))
    np.testing.assert_allclose(far, [np.exp(20.0) - 21.0, 19.0], rtol=1e-5)
    near = kl_k3(jnp.array([1e-3]), jnp.array([0.0]))
    np.testing.assert_allclose(near, [0.5e-6], rtol=2e-3)
    assert (kl_k3(jnp.linspace(-30.0, 30.0, 61), jnp.zeros(61)) >= 0).all()
