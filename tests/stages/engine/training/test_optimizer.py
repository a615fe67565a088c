"""Learning rates by hand, and updates against each optimizer written out in numpy."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import TypeAdapter

from stages.engine.training.config import (
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    MuonConfig,
    OptimizerConfig,
    SgdConfig,
    UpdateConfig,
)
from stages.engine.training.optimizer import make_rule, make_schedule

NUM_UPDATES = 6
GRADIENTS = np.array(
    [[3.0, -4.0], [0.3, 0.1], [-0.2, 0.05], [6.0, 8.0], [0.01, -0.02], [0.5, 0.5]], np.float32
)  # norms 5, 0.32, 0.21, 10, 0.02 and 0.71
BASE = AdamWConfig(
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


def updated(config: AdamWConfig) -> np.ndarray:
    optimizer = make_rule(config, NUM_UPDATES).transform
    weights = {"w": jnp.array([1.0, -2.0])}
    state = optimizer.init(weights)
    step = jax.jit(optimizer.update)
    for gradient in GRADIENTS:
        changes, state = step({"w": jnp.asarray(gradient)}, state, weights)
        weights = jax.tree.map(jnp.add, weights, changes)
    return np.asarray(weights["w"])


def written_out(config: AdamWConfig, rates: list[float]) -> np.ndarray:
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


def test_the_rate_falls_to_a_share_of_its_peak() -> None:
    assert rates(decay="linear", decay_to=0.5)[2:] == [0.1, 0.0875, 0.075, 0.0625, 0.05]
    assert rates(decay="cosine", decay_to=0.5)[-1] == 0.05


Step = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""From a matrix, its gradient and the number of the update, from 1, to the change before rate and decay."""


def plain(kind: str, **settings: object) -> OptimizerConfig:
    """Settings as a pipeline gives them."""
    given = {"learning_rate": 0.1, "max_grad_norm": 100.0, "weight_decay": 0.1, "kind": kind, **settings}
    return TypeAdapter[OptimizerConfig](OptimizerConfig).validate_python(given)


def lion(config: LionConfig) -> Step:
    moment = np.zeros(1)

    def step(weight: np.ndarray, gradient: np.ndarray, count: int) -> np.ndarray:
        nonlocal moment
        change = np.sign(config.beta1 * moment + (1 - config.beta1) * gradient)
        moment = config.beta2 * moment + (1 - config.beta2) * gradient
        return change

    return step


def sgd(config: SgdConfig) -> Step:
    moment = np.zeros(1)

    def step(weight: np.ndarray, gradient: np.ndarray, count: int) -> np.ndarray:
        nonlocal moment
        moment = config.momentum * moment + gradient
        return config.momentum * moment + gradient if config.nesterov else moment

    return step


def muon(config: MuonConfig) -> Step:
    moment = np.zeros(1)

    def step(weight: np.ndarray, gradient: np.ndarray, count: int) -> np.ndarray:
        nonlocal moment
        moment = config.momentum * moment + (1 - config.momentum) * gradient
        corrected = moment / (1 - config.momentum ** (count + 1))
        ahead = config.momentum * corrected + (1 - config.momentum) * gradient / (1 - config.momentum**count)
        x = ahead / (np.linalg.norm(ahead, axis=(-2, -1), keepdims=True) + 1e-8)
        for _ in range(5):  # Newton-Schulz with the coefficients of Jordan et al., 2024
            square = x @ x.swapaxes(-1, -2)
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        inputs, outputs = weight.shape[-2:]
        return x * (
            config.match_rms * max(inputs, outputs) ** 0.5 if config.match_rms else max(1, outputs / inputs) ** 0.5
        )

    return step


def adafactor(config: AdafactorConfig) -> Step:
    second = np.zeros(1)

    def step(weight: np.ndarray, gradient: np.ndarray, count: int) -> np.ndarray:
        nonlocal second
        decay = 1 - float(count) ** -config.decay_rate
        second = decay * second + (1 - decay) * (gradient**2 + 1e-30)
        change = gradient / np.sqrt(second)
        change = change / max(1.0, np.sqrt(np.mean(change**2)) / config.clipping_threshold)
        return change * max(1e-3, np.sqrt(np.mean(weight**2))) if config.scale_by_weights else change

    return step


@pytest.mark.parametrize(
    ("make", "config"),
    [
        (lion, plain("lion")),
        (lion, plain("lion", beta1=0.5, beta2=0.7)),
        (sgd, plain("sgd")),
        (sgd, plain("sgd", momentum=0.8)),
        (sgd, plain("sgd", momentum=0.8, nesterov=True)),
        (muon, plain("muon")),
        (muon, plain("muon", momentum=0.5, match_rms=None)),
        (adafactor, plain("adafactor")),
        (adafactor, plain("adafactor", decay_rate=0.5, clipping_threshold=0.3)),
        (adafactor, plain("adafactor", scale_by_weights=True)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, UpdateConfig) else "",
)
def test_updates_are_those_of_the_named_optimizer(make: Callable[..., Step], config: OptimizerConfig) -> None:
    step = make(config)
    draw = np.random.Generator(np.random.Philox(3))
    weight, transform = draw.normal(size=(2, 4, 6)), make_rule(config, NUM_UPDATES).transform
    found = {"blocks.mlp.up_proj.kernel": jnp.asarray(weight, jnp.float32)}
    state, update = transform.init(found), jax.jit(transform.update)
    for count in range(1, 5):
        gradient = draw.normal(size=weight.shape)
        changes, state = update({name: jnp.asarray(gradient, jnp.float32) for name in found}, state, found)
        found = jax.tree.map(jnp.add, found, changes)
        weight = weight - 0.1 * (step(weight, gradient, count) + 0.1 * weight)
    np.testing.assert_allclose(found["blocks.mlp.up_proj.kernel"], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        plain("adamw"),
        plain("lion"),
        plain("sgd"),
        plain("muon"),
        plain("adafactor"),
    ],
    ids=lambda config: type(config).__name__,
)
def test_matrices_decay_and_norms_and_biases_do_not(config: OptimizerConfig) -> None:
    names = ("blocks.mlp.up_proj.kernel", "embed.embedding", "blocks.input_norm.scale", "blocks.q_proj.bias")
    weights = {name: jnp.ones((2, 3, 3)) for name in names}
    transform = make_rule(config, NUM_UPDATES).transform
    still = jax.tree.map(jnp.zeros_like, weights)
    changes, _ = jax.jit(transform.update)(still, transform.init(weights), weights)
    expected = {name: 0.0 if name.endswith(("scale", "bias")) else -0.01 for name in names}
    assert {name: round(float(change[0, 0, 0]), 6) for name, change in changes.items()} == expected


def test_muon_leaves_what_lies_outside_of_blocks_to_adamw() -> None:
    config = plain("muon", beta1=0.5, beta2=0.6)
    alone = plain("adamw", beta1=0.5, beta2=0.6)
    gradient = {"embed.embedding": jnp.asarray(GRADIENTS), "blocks.norm.scale": jnp.asarray(GRADIENTS)}
    weights = jax.tree.map(jnp.ones_like, gradient)
    found, expected = (
        rule.transform.update(gradient, rule.transform.init(weights), weights)[0]
        for rule in (make_rule(config, 1), make_rule(alone, 1))
    )
    for change, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(change, other, rtol=1e-5)
