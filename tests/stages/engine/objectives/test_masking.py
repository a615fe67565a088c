"""Masked reductions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from stages.engine.objectives.masking import masked_mean, masked_sum, ratio

TOLERANCE = 1e-5
Oracle = Callable[[str, str], np.ndarray]
"""Name of an entry and a field to its numbers."""


def test_the_mean_is_that_of_the_unmasked_values(oracle: Oracle) -> None:
    mean = masked_mean(jnp.asarray(oracle("masked_mean", "x")), jnp.array(oracle("masked_mean", "mask"), jnp.bool_))
    np.testing.assert_allclose(mean, oracle("masked_mean", "mean"), atol=TOLERANCE)


def test_a_row_without_tokens_has_sum_and_mean_zero_and_no_gradient() -> None:
    values = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    mask = jnp.array([[False, False], [True, False]])
    assert masked_mean(values, mask).tolist() == [0.0, 3.0]
    assert masked_sum(values, mask).tolist() == [0.0, 3.0]
    gradient = jax.grad(lambda x: masked_mean(x, mask).sum())(values)
    assert gradient.tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_what_is_masked_does_not_enter_even_if_it_is_not_a_number() -> None:
    values = jnp.array([[1.0, jnp.nan, jnp.inf]])
    mask = jnp.array([[True, False, False]])
    assert masked_mean(values, mask).tolist() == [1.0]
    assert jax.grad(lambda x: masked_mean(x, mask).sum())(values).tolist() == [[1.0, 0.0, 0.0]]


def test_a_metric_is_a_sum_over_a_sum_and_not_a_mean_of_means(oracle: Oracle) -> None:
    total, denominator = jnp.asarray(oracle("weighted_metric", "values")).sum(0)
    np.testing.assert_allclose(ratio(total, denominator), oracle("weighted_metric", "sum_over_sum"), atol=TOLERANCE)
    assert ratio(jnp.array(0.0), jnp.array(0.0)) == 0.0
    assert jax.grad(lambda x: ratio(x, jnp.array(0.0)))(1.0) == 0.0
