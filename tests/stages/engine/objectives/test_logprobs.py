"""Log-probabilities of targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.engine.objectives.logprobs import target_logprobs


def test_values_are_those_of_the_softmax_worked_by_hand() -> None:
    logits = jnp.log(jnp.array([[1.0, 2.0, 5.0], [4.0, 4.0, 8.0]]))
    np.testing.assert_allclose(target_logprobs(logits, jnp.array([1, 2])), np.log([0.25, 0.5]), rtol=1e-6)


def test_the_temperature_is_that_of_the_distribution_sampled() -> None:
    logits = jnp.log(jnp.array([[1.0, 4.0, 9.0]]))
    got = target_logprobs(logits, jnp.array([2]), temperature=2.0)
    np.testing.assert_allclose(got, np.log([3 / 6]), rtol=1e-6)
    got = target_logprobs(logits, jnp.array([2]), temperature=0.5)
    np.testing.assert_allclose(got, np.log([81 / 98]), rtol=1e-6)


def test_probabilities_sum_to_one_over_the_vocabulary() -> None:
    logits = jax.random.normal(jax.random.key(0), (7,)) * 5
    every = target_logprobs(jnp.broadcast_to(logits, (7, 7)), jnp.arange(7), temperature=0.7)
    np.testing.assert_allclose(jnp.exp(every).sum(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_huge_logits_neither_overflow_nor_lose_the_difference(shift: float) -> None:
    logits = jnp.array([[0.0, jnp.log(3.0)]]) + shift
    np.testing.assert_allclose(target_logprobs(logits, jnp.array([1])), np.log([0.75]), atol=1e-3)
    assert target_logprobs(jnp.array([[0.0, shift]]), jnp.array([0]))[0] == min(0.0, -shift)


def test_logits_of_a_short_type_are_summed_in_float32() -> None:
    logits = jnp.zeros((1, 1000), jnp.bfloat16)
    got = target_logprobs(logits, jnp.array([3]))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, [-np.log(1000)], rtol=1e-6)


def test_the_gradient_is_one_hot_minus_the_probabilities_over_the_temperature() -> None:
    logits = jnp.log(jnp.array([1.0, 4.0, 9.0]))
    gradient = jax.grad(lambda x: target_logprobs(x, jnp.array(1), 2.0))(logits)
    np.testing.assert_allclose(gradient, (np.array([0, 1, 0]) - np.array([1, 2, 3]) / 6) / 2, rtol=1e-5)
