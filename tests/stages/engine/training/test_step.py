"""Gradients of parts add up to the whole's, and an update divides once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jaxtyping import Array, Float

from stages.engine.models.lora import Weights
from stages.engine.models.transformer import Cells
from stages.engine.training.optimizer import UpdateRule
from stages.engine.training.state import start_state
from stages.engine.training.step import Applied, Gradient, Loss, add_gradients, loss_means, make_gradient, make_update

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


def apply(rule: UpdateRule, *gradients: Gradient) -> Applied:
    """One update after the other."""
    state = start_state(WEIGHTS, rule, seed=0)
    weights, optimizer, update = state.weights, state.optimizer, make_update(rule)
    for one in gradients[:-1]:
        weights, optimizer, *_ = update(weights, optimizer, one)
    return update(weights, optimizer, gradients[-1])


def rule_of(*transforms: optax.GradientTransformation, ema_decay: float | None = None) -> UpdateRule:
    return UpdateRule(optax.chain(*transforms), lambda count: 0.1 / (count + 1), ema_decay)


def test_an_update_applies_the_sum_over_the_denominator_and_reports_its_norm() -> None:
    summed = gradient(WEIGHTS, BASE, POINTS)
    applied = apply(rule_of(optax.sgd(0.1)), summed)
    averaged = np.asarray(summed.weights["w"]) / 6.0
    np.testing.assert_allclose(applied.weights["w"], np.asarray(WEIGHTS["w"]) - 0.1 * averaged, rtol=1e-6)
    np.testing.assert_allclose(applied.grad_norm, np.linalg.norm(averaged), rtol=1e-6)


def test_the_norm_is_that_before_clipping_and_the_step_that_after() -> None:
    applied = apply(rule_of(optax.clip_by_global_norm(0.5), optax.sgd(1.0)), gradient(WEIGHTS, BASE, POINTS))
    assert float(applied.grad_norm) > 1.0
    np.testing.assert_allclose(jnp.linalg.norm(applied.weights["w"] - WEIGHTS["w"]), 0.5, rtol=1e-6)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_an_update_that_is_no_finite_number_leaves_weights_moments_and_mean_as_they_were(where: str) -> None:
    good = gradient(WEIGHTS, BASE, POINTS)
    loss, weights = good.loss._replace(total=jnp.float32(jnp.inf)), {"w": jnp.array([jnp.nan, 1.0])}
    bad = good._replace(loss=loss) if where == "loss" else good._replace(weights=weights)
    rule = rule_of(optax.adam(lambda count: 0.1 / (count + 1)), ema_decay=0.9)
    with_bad, without = apply(rule, good, bad, good), apply(rule, good, good)
    for found, expected in zip(*map(jax.tree.leaves, (with_bad.weights, without.weights)), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (int(with_bad.optimizer.applied), int(with_bad.optimizer.skipped)) == (2, 1)
    found, expected = with_bad.optimizer._replace(skipped=jnp.int32(0)), without.optimizer
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_array_equal(one, other)
    # The rate that is told is that of the update, which a skipped one does not use up.
    np.testing.assert_allclose([with_bad.learning_rate, without.learning_rate], 0.05, rtol=1e-6)


def test_an_update_with_nothing_to_learn_from_moves_nothing_and_is_no_fault() -> None:
    empty = gradient(WEIGHTS, BASE, Points(POINTS.x, jnp.zeros(4)))
    applied = apply(rule_of(optax.adam(0.1), ema_decay=0.9), empty)
    np.testing.assert_array_equal(applied.weights["w"], WEIGHTS["w"])
    assert (int(applied.optimizer.applied), int(applied.optimizer.skipped)) == (0, 0)
    assert float(applied.grad_norm) == 0.0
    assert float(loss_means([empty.loss])["loss/total"]) == 0.0


def test_the_mean_of_weights_follows_them_by_its_decay() -> None:
    summed = gradient(WEIGHTS, BASE, POINTS)
    one, two = (apply(rule_of(optax.sgd(0.1), ema_decay=0.75), *[summed] * n) for n in (1, 2))
    first = 0.75 * np.asarray(WEIGHTS["w"]) + 0.25 * np.asarray(one.weights["w"])
    np.testing.assert_allclose(one.optimizer.average["w"], first, rtol=1e-6)
    second = 0.75 * first + 0.25 * np.asarray(two.weights["w"])
    np.testing.assert_allclose(two.optimizer.average["w"], second, rtol=1e-6)
    assert apply(rule_of(optax.sgd(0.1)), summed).optimizer.average == {}


def test_an_update_overwrites_what_it_is_given_but_not_what_the_run_started_from() -> None:
    rule = rule_of(optax.sgd(0.1))
    given = {"w": jnp.array([0.5, -1.0])}
    state = start_state(given, rule, seed=0)
    make_update(rule)(state.weights, state.optimizer, gradient(given, BASE, POINTS))
    assert state.weights["w"].is_deleted()
    np.testing.assert_array_equal(given["w"], WEIGHTS["w"])


def test_means_are_sums_over_the_common_denominator_and_not_means_of_means() -> None:
    losses = [
        Loss(jnp.float32(6), jnp.float32(3), {"loss/kl": jnp.float32(3)}),
        Loss(jnp.float32(4), jnp.float32(1), {"loss/kl": jnp.float32(0)}),
    ]
    assert {name: float(value) for name, value in loss_means(losses).items()} == {"loss/total": 2.5, "loss/kl": 0.75}
