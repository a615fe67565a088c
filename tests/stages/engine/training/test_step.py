"""Gradients of parts add up to the whole's, and an update divides once."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jaxtyping import Array, Float

from stages.engine.models.lora import Weights
from stages.engine.models.transformer import Cells
from stages.engine.training.step import Gradient, Loss, add_gradients, loss_means, make_gradient, make_update

BASE = nnx.State({})


class Points(NamedTuple):
    x: Float[Array, "B 2"]
    weight: Float[Array, " B"]


POINTS = Points(jnp.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5], [-2.0, 1.0]]), jnp.array([1.0, 2.0, 0.0, 3.0]))
WEIGHTS: Weights = {"w": jnp.array([0.5, -1.0])}


def loss(weights: Weights, base: Cells, batch: Points) -> Loss:
    """Weighted squares, so that parts have unequal denominators."""
    squares = jnp.square(batch.x @ weights["w"])
    total = jnp.sum(batch.weight * squares)
    return Loss(total, batch.weight.sum(), {"loss/plain": squares.sum()})


gradient = make_gradient(loss)


def part(*rows: int) -> Points:
    index = np.array(rows)
    return Points(POINTS.x[index], POINTS.weight[index])


def test_a_gradient_is_that_of_the_sum_and_comes_with_the_loss() -> None:
    found = gradient(WEIGHTS, BASE, POINTS)
    outputs = np.array([-1.5, 2.5, -0.25, -2.0])
    expected = 2 * (np.asarray(POINTS.weight) * outputs) @ np.asarray(POINTS.x)
    np.testing.assert_allclose(found.weights["w"], expected, rtol=1e-6)
    np.testing.assert_allclose(found.loss.total, (np.asarray(POINTS.weight) * outputs**2).sum(), rtol=1e-6)
    assert float(found.loss.denominator) == 6.0


@pytest.mark.parametrize("parts", [[(0,), (1, 2, 3)], [(0, 1), (2, 3)], [(0,), (1,), (2,), (3,)], [(2,), (3, 1, 0)]])
def test_parts_add_up_to_the_whole_batchs_gradient_however_it_is_split(parts: list[tuple[int, ...]]) -> None:
    whole = gradient(WEIGHTS, BASE, POINTS)
    total: Gradient = gradient(WEIGHTS, BASE, part(*parts[0]))
    for rows in parts[1:]:
        total = add_gradients(total, gradient(WEIGHTS, BASE, part(*rows)))
    np.testing.assert_allclose(total.weights["w"], whole.weights["w"], rtol=1e-6)
    np.testing.assert_allclose(total.loss.total, whole.loss.total, rtol=1e-6)
    assert float(total.loss.denominator) == float(whole.loss.denominator)


def test_an_update_applies_the_sum_over_the_denominator_and_reports_its_norm() -> None:
    optimizer = optax.sgd(0.1)
    summed = gradient(WEIGHTS, BASE, POINTS)
    applied = make_update(optimizer)(WEIGHTS, optimizer.init(WEIGHTS), summed)
    averaged = np.asarray(summed.weights["w"]) / 6.0
    np.testing.assert_allclose(applied.weights["w"], np.asarray(WEIGHTS["w"]) - 0.1 * averaged, rtol=1e-6)
    np.testing.assert_allclose(applied.grad_norm, np.linalg.norm(averaged), rtol=1e-6)


def test_the_norm_is_that_before_clipping_and_the_step_that_after() -> None:
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(1.0))
    applied = make_update(optimizer)(WEIGHTS, optimizer.init(WEIGHTS), gradient(WEIGHTS, BASE, POINTS))
    assert float(applied.grad_norm) > 1.0
    np.testing.assert_allclose(jnp.linalg.norm(applied.weights["w"] - WEIGHTS["w"]), 0.5, rtol=1e-6)


def test_means_are_sums_over_the_common_denominator_and_not_means_of_means() -> None:
    losses = [
        Loss(jnp.float32(6), jnp.float32(3), {"loss/kl": jnp.float32(3)}),
        Loss(jnp.float32(4), jnp.float32(1), {"loss/kl": jnp.float32(0)}),
    ]
    assert {name: float(value) for name, value in loss_means(losses).items()} == {"loss/total": 2.5, "loss/kl": 0.75}
