"""Learning rates by hand, and updates against AdamW written out in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.engine.training.config import OptimizerConfig
from stages.engine.training.optimizer import make_optimizer, make_schedule

NUM_UPDATES = 6
GRADIENTS = np.array(
    [[3.0, -4.0], [0.3, 0.1], [-0.2, 0.05], [6.0, 8.0], [0.01, -0.02], [0.5, 0.5]], np.float32
)  # norms 5, 0.32, 0.21, 10, 0.02 and 0.71
BASE = OptimizerConfig(
    learning_rate=0.1,
    warmup_steps=2,
    decay="linear",
    weight_decay=0.1,
    beta1=0.8,
    beta2=0.95,
    epsilon=1e-3,
    max_grad_norm=1.0,
)


def rates(**settings: object) -> list[float]:
    schedule = make_schedule(BASE.model_copy(update=settings), NUM_UPDATES)
    return [round(np.asarray(schedule(update)).item(), 6) for update in range(NUM_UPDATES + 1)]


def updated(config: OptimizerConfig) -> np.ndarray:
    optimizer = make_optimizer(config, NUM_UPDATES)
    weights = {"w": jnp.array([1.0, -2.0])}
    state = optimizer.init(weights)
    step = jax.jit(optimizer.update)
    for gradient in GRADIENTS:
        changes, state = step({"w": jnp.asarray(gradient)}, state, weights)
        weights = jax.tree.map(jnp.add, weights, changes)
    return np.asarray(weights["w"])


def written_out(config: OptimizerConfig, rates: list[float]) -> np.ndarray:
    weights, first, second = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for count, (raw, rate) in enumerate(zip(GRADIENTS.astype(np.float64), rates, strict=False), start=1):
        gradient = raw * min(1.0, config.max_grad_norm / np.linalg.norm(raw))
        first = config.beta1 * first + (1 - config.beta1) * gradient
        second = config.beta2 * second + (1 - config.beta2) * gradient**2
        root = np.sqrt(second / (1 - config.beta2**count)) + config.epsilon
        step = first / (1 - config.beta1**count) / root
        weights = weights - rate * (step + config.weight_decay * weights)
    return weights


def test_the_rate_rises_to_its_peak_and_never_starts_at_zero() -> None:
    assert rates(decay="constant") == [0.033333, 0.066667, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert rates(decay="constant", warmup_steps=0) == [0.1] * 7


def test_the_rate_falls_to_zero_at_the_last_update() -> None:
    assert rates(decay="linear") == [0.033333, 0.066667, 0.1, 0.075, 0.05, 0.025, 0.0]
    assert rates(decay="linear", warmup_steps=0) == [0.1, 0.083333, 0.066667, 0.05, 0.033333, 0.016667, 0.0]
    cosine = [0.05 * (1 + np.cos(np.pi * update / 4)) for update in range(5)]
    assert rates(decay="cosine") == [0.033333, 0.066667, *(round(rate, 6) for rate in cosine)]


def test_a_warm_up_as_long_as_the_run_has_no_decay_in_it() -> None:
    assert rates(decay="linear", warmup_steps=6)[:6] == [round(0.1 * (n + 1) / 7, 6) for n in range(6)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learning_rate": 0.02},
        {"weight_decay": 0.0},
        {"beta1": 0.0},
        {"beta2": 0.5},
        {"epsilon": 1.0},
        {"max_grad_norm": 0.5},
        {"max_grad_norm": 100.0},
    ],
)
def test_updates_are_adamw_on_clipped_gradients(settings: dict[str, float]) -> None:
    config = BASE.model_copy(update=settings)
    np.testing.assert_allclose(updated(config), written_out(config, rates(**settings)), rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": 0.02},
        {"warmup_steps": 0},
        {"decay": "constant"},
        {"decay": "cosine"},
        {"weight_decay": 0.0},
        {"beta1": 0.7},
        {"beta2": 0.9},
        {"epsilon": 1e-2},
        {"max_grad_norm": 2.0},
    ],
)
def test_every_setting_changes_the_result(settings: dict[str, object]) -> None:
    assert np.abs(updated(BASE.model_copy(update=settings)) - updated(BASE)).max() > 1e-4
