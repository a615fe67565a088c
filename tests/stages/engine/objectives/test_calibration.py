"""Calibration against values worked by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from stages.engine.objectives.calibration import brier_score, expected_calibration_error, reliability

PROBABILITIES = jnp.array([0.6, 0.4, 0.9, 0.05, 1.0, 0.5, 0.7])
OUTCOMES = jnp.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
MASK = jnp.array([True, True, True, True, True, True, False])


def test_predictions_fall_into_bins_of_how_certain_they_were() -> None:
    bins = reliability(PROBABILITIES, OUTCOMES, MASK, 2)
    # 0.6 right, 0.4 (so 0.6 for the other) wrong, a half; then 0.9 right, 0.05 (0.95 for the other) right, 1 wrong.
    np.testing.assert_allclose(bins.counts, [3, 3])
    np.testing.assert_allclose(bins.confidences, [1.7 / 3, 2.85 / 3], rtol=1e-6)
    np.testing.assert_allclose(bins.accuracies, [0.5, 2 / 3], rtol=1e-6)


def test_a_bin_ends_with_its_upper_edge() -> None:
    bins = reliability(jnp.array([0.75, 0.25, 0.76]), jnp.ones(3), jnp.ones(3, bool), 2)
    assert bins.counts.tolist() == [2, 1]


def test_the_expected_error_weights_the_bins_by_their_predictions() -> None:
    bins = reliability(PROBABILITIES, OUTCOMES, MASK, 2)
    expected = (3 * abs(0.5 - 1.7 / 3) + 3 * abs(2 / 3 - 0.95)) / 6
    assert float(expected_calibration_error(bins)) == pytest.approx(expected, rel=1e-5)


def test_probabilities_that_come_true_as_often_as_they_say_have_no_error() -> None:
    bins = reliability(jnp.full(4, 0.75), jnp.array([1.0, 1.0, 1.0, 0.0]), jnp.ones(4, bool), 5)
    assert float(expected_calibration_error(bins)) == pytest.approx(0.0, abs=1e-7)


def test_the_brier_score_is_the_mean_squared_distance() -> None:
    expected = (0.16 + 0.36 + 0.01 + 0.0025 + 1 + 0.25) / 6
    assert float(brier_score(PROBABILITIES, OUTCOMES, MASK)) == pytest.approx(expected, rel=1e-6)


def test_without_predictions_all_is_zero() -> None:
    nothing = jnp.zeros_like(MASK)
    bins = reliability(PROBABILITIES, OUTCOMES, nothing, 3)
    assert bins.counts.tolist() == bins.confidences.tolist() == bins.accuracies.tolist() == [0, 0, 0]
    assert float(expected_calibration_error(bins)) == float(brier_score(PROBABILITIES, OUTCOMES, nothing)) == 0
