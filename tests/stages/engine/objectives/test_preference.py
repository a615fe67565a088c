"""Losses of preferences: hand values, oracles, and gradients against differences of an independent computation."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.engine.objectives import preference

TOLERANCE = 1e-5
Oracle = Callable[[str, str], np.ndarray]
"""Name of an entry and a field to its numbers."""

LN2 = math.log(2.0)
SUMS = np.array([[-3.0, -1.5], [-2.0, -9.0], [-0.5, -0.25], [-40.0, -4.0]])
"""Of pairs, chosen and rejected."""
MEANS = np.array([[-0.3, -0.75], [-2.0, -0.9], [-0.05, -4.0], [-1.25, -1.25]])


def sigma(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def odds(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / (1.0 - np.exp(x))


def numpy_kto(ratios: np.ndarray, baseline: float) -> np.ndarray:
    chosen, rejected = ratios[:, 0], ratios[:, 1]
    return 1.5 * (1 - sigma(0.2 * (chosen - baseline))) + 0.5 * (1 - sigma(0.2 * (baseline - rejected)))


def jax_kto(ratios: jax.Array, baseline: float) -> jax.Array:
    labels = jnp.broadcast_to(jnp.array([True, False]), ratios.shape)
    return preference.kto(ratios, labels, jnp.asarray(baseline), 0.2, 1.5, 0.5).sum(-1)


Loss = Callable[[jax.Array], jax.Array]
LOSSES: dict[str, tuple[Loss, Callable[[np.ndarray], np.ndarray], np.ndarray]] = {
    "dpo": (
        lambda x: preference.dpo(0.3 * (x[:, 0] - x[:, 1])),
        lambda x: -np.log(sigma(0.3 * (x[:, 0] - x[:, 1]))),
        SUMS,
    ),
    "conservative dpo": (
        lambda x: preference.dpo(0.3 * (x[:, 0] - x[:, 1]), 0.2),
        lambda x: -0.8 * np.log(sigma(0.3 * (x[:, 0] - x[:, 1]))) - 0.2 * np.log(sigma(-0.3 * (x[:, 0] - x[:, 1]))),
        SUMS,
    ),
    "robust dpo": (
        lambda x: preference.robust_dpo(0.3 * (x[:, 0] - x[:, 1]), 0.2),
        lambda x: (
            (-0.8 * np.log(sigma(0.3 * (x[:, 0] - x[:, 1]))) + 0.2 * np.log(sigma(-0.3 * (x[:, 0] - x[:, 1])))) / 0.6
        ),
        SUMS,
    ),
    "hinge": (
        lambda x: preference.hinge(0.1 * (x[:, 0] - x[:, 1])),
        lambda x: np.maximum(0, 1 - 0.1 * (x[:, 0] - x[:, 1])),
        SUMS[[0, 2, 3]],
    ),
    "ipo": (
        lambda x: preference.ipo(x[:, 0] - x[:, 1], 0.25),
        lambda x: (x[:, 0] - x[:, 1] - 2.0) ** 2,
        MEANS,
    ),
    "simpo": (
        lambda x: preference.simpo(x[:, 0], x[:, 1], 2.0, 0.5),
        lambda x: -np.log(sigma(2.0 * x[:, 0] - 2.0 * x[:, 1] - 0.5)),
        MEANS,
    ),
    "orpo": (
        lambda x: preference.orpo(x[:, 0], x[:, 1], 0.4),
        lambda x: -x[:, 0] - 0.4 * np.log(sigma(np.log(odds(x[:, 0]) / odds(x[:, 1])))),
        MEANS,
    ),
    "kto": (lambda x: jax_kto(x, 0.7), lambda x: numpy_kto(x, 0.7), SUMS),
}


@pytest.mark.parametrize(("found", "expected", "given"), LOSSES.values(), ids=LOSSES)
def test_values_are_those_of_an_independent_computation(
    found: Loss, expected: Callable[[np.ndarray], np.ndarray], given: np.ndarray
) -> None:
    np.testing.assert_allclose(found(jnp.asarray(given, jnp.float32)), expected(given), rtol=TOLERANCE, atol=1e-6)


@pytest.mark.parametrize(("found", "expected", "given"), LOSSES.values(), ids=LOSSES)
def test_gradients_are_differences_of_an_independent_computation(
    found: Loss, expected: Callable[[np.ndarray], np.ndarray], given: np.ndarray
) -> None:
    gradient = jax.grad(lambda x: found(x).sum())(jnp.asarray(given, jnp.float32))
    for entry in np.ndindex(given.shape):
        moved = np.zeros_like(given)
        moved[entry] = 1e-6
        difference = (expected(given + moved).sum() - expected(given - moved).sum()) / 2e-6
        np.testing.assert_allclose(gradient[entry], difference, rtol=1e-4, atol=1e-6)


def test_dpo_gives_the_oracles_values(oracle: Oracle) -> None:
    chosen = oracle("dpo", "chosen") - oracle("dpo", "ref_chosen")
    rejected = oracle("dpo", "rejected") - oracle("dpo", "ref_rejected")
    margins = jnp.asarray(oracle("dpo", "beta") * (chosen - rejected))
    np.testing.assert_allclose(preference.dpo(margins).mean(), oracle("dpo", "loss"), rtol=TOLERANCE)
    smoothed = preference.dpo(margins, 0.3).mean()
    np.testing.assert_allclose(smoothed, oracle("dpo", "label_smoothing_03"), rtol=TOLERANCE)


def test_dpo_and_hinge_give_the_published_values_of_three_margins(oracle: Oracle) -> None:
    margins = jnp.asarray(oracle("dpo_margins", "margins"))
    np.testing.assert_allclose(preference.dpo(margins), oracle("dpo_margins", "sigmoid"), rtol=TOLERANCE)
    np.testing.assert_allclose(preference.hinge(margins), oracle("dpo_margins", "hinge"), atol=TOLERANCE)


def test_the_odds_ratio_gives_the_oracles_value(oracle: Oracle) -> None:
    chosen, rejected = jnp.asarray(oracle("orpo", "chosen")), jnp.asarray(oracle("orpo", "rejected"))
    found = preference.odds_ratio(chosen, rejected).mean()
    np.testing.assert_allclose(found, oracle("orpo", "odds_ratio_loss"), rtol=TOLERANCE)
    # The oracle's likelihood term is weighted by 1.5.
    total = (preference.orpo(chosen, rejected, 0.1) - 0.5 * chosen).mean()
    np.testing.assert_allclose(total, oracle("orpo", "total"), rtol=TOLERANCE)


def test_what_has_not_moved_from_its_reference_has_the_losses_worked_by_hand() -> None:
    zero = jnp.zeros(1)
    assert float(preference.dpo(zero)[0]) == pytest.approx(LN2)
    assert float(preference.dpo(zero, 0.3)[0]) == pytest.approx(LN2)
    assert float(preference.robust_dpo(zero, 0.3)[0]) == pytest.approx(LN2)
    assert float(preference.hinge(zero)[0]) == 1.0
    assert float(preference.ipo(zero, 0.1)[0]) == pytest.approx(25.0)
    assert float(preference.kto(zero, jnp.array([True]), jnp.asarray(0.0), 0.1)[0]) == 0.5
    # 1/2 of beta, the slope of -log σ at 0.
    assert float(jax.grad(lambda x: preference.dpo(0.1 * x).sum())(zero)[0]) == pytest.approx(-0.05)


def test_robust_dpo_of_flipped_pairs_is_on_average_dpo_of_right_ones() -> None:
    margins = jnp.array([-2.0, 0.3, 5.0])
    mean = 0.8 * preference.robust_dpo(margins, 0.2) + 0.2 * preference.robust_dpo(-margins, 0.2)
    np.testing.assert_allclose(mean, preference.dpo(margins), rtol=TOLERANCE, atol=1e-6)


def test_margins_far_out_give_finite_losses_and_gradients() -> None:
    margins = jnp.array([-1e4, 1e4])
    losses = (preference.dpo, lambda m: preference.robust_dpo(m, 0.1), preference.hinge)
    for value, slope in ((loss(margins), jax.grad(lambda m, f=loss: f(m).sum())(margins)) for loss in losses):
        assert jnp.isfinite(value).all()
        assert jnp.isfinite(slope).all()


@pytest.mark.parametrize("logprob", [0.0, 1e-6, -1e-9, -200.0])
def test_odds_of_what_is_certain_or_impossible_are_finite(logprob: float) -> None:
    given = jnp.array([logprob]), jnp.array([-0.5])
    for pair in (given, given[::-1]):
        value, slopes = jax.value_and_grad(lambda c, r: preference.orpo(c, r, 1.0).sum(), (0, 1))(*pair)
        assert jnp.isfinite(value)
        assert all(jnp.isfinite(slope).all() for slope in slopes)


def test_the_baseline_of_kto_is_a_mean_that_is_never_negative_and_has_no_gradient() -> None:
    four = jnp.asarray(4.0)
    assert float(preference.kto_baseline(jnp.asarray(6.0), four)) == 1.5
    assert float(preference.kto_baseline(jnp.asarray(-6.0), four)) == 0.0
    assert float(preference.kto_baseline(jnp.asarray(6.0), jnp.asarray(0.0))) == 0.0
    assert float(jax.grad(lambda total: preference.kto_baseline(total, four))(jnp.asarray(6.0))) == 0.0


def test_a_tie_is_half_preferred() -> None:
    found = preference.preferred(jnp.array([1.0, 2.0, 0.0]), jnp.array([1.0, 1.0, 1.0]))
    np.testing.assert_array_equal(found, [0.5, 1.0, 0.0])
