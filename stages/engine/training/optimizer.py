"""The optimizer that the settings describe."""

from collections.abc import Mapping
from typing import NamedTuple

import optax
from optax.contrib import MuonDimensionNumbers, muon

from stages.engine.training.config import (
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    MuonConfig,
    OptimizerConfig,
    SgdConfig,
)

_NOT_DECAYED = ("scale", "bias")
_LAST_TWO_AXES = MuonDimensionNumbers(-2, -1)
"""Inputs and outputs of a matrix; what stands before, such as layers, is updated one by one."""


class UpdateRule(NamedTuple):
    """How a gradient moves weights.

    Attributes:
        transform: from a gradient to the change of the weights, clipping and learning rate included.
        schedule: learning rate by the number of updates applied before.
        ema_decay: of the running mean of the weights, if there is one.
        max_skipped: updates that may be skipped.
    """

    transform: optax.GradientTransformation
    schedule: optax.Schedule
    ema_decay: float | None = None
    max_skipped: int = 0


def make_rule(config: OptimizerConfig, num_updates: int) -> UpdateRule:
    """Clipping by the global norm, then the optimizer under its schedule."""
    schedule = make_schedule(config, num_updates)
    transform = optax.chain(optax.clip_by_global_norm(config.max_grad_norm), _transform(config, schedule))
    return UpdateRule(transform, schedule, config.ema_decay, config.max_skipped_updates)


def make_schedule(config: OptimizerConfig, num_updates: int) -> optax.Schedule:
    """Learning rate by update: a linear rise over `warmup_steps`, then the chosen decay until `num_updates`."""
    peak, decay_steps = config.learning_rate, max(num_updates - config.warmup_steps, 1)
    after = {
        "constant": optax.constant_schedule(peak),
        "linear": optax.linear_schedule(peak, peak * config.decay_to, decay_steps),
        "cosine": optax.cosine_decay_schedule(peak, decay_steps, config.decay_to),
    }[config.decay]
    # The first update of a warm-up is not wasted on a rate of 0.
    warmup = optax.linear_schedule(peak / (config.warmup_steps + 1), peak, config.warmup_steps)
    return optax.join_schedules([warmup, after], [config.warmup_steps]) if config.warmup_steps else after


def _transform(config: OptimizerConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    decay = config.weight_decay
    match config:
        case AdamWConfig(beta1=beta1, beta2=beta2, epsilon=epsilon):
            return optax.adamw(schedule, b1=beta1, b2=beta2, eps=epsilon, weight_decay=decay, mask=_decayed)
        case LionConfig(beta1=beta1, beta2=beta2):
            return optax.lion(schedule, b1=beta1, b2=beta2, weight_decay=decay, mask=_decayed)
        case MuonConfig():
            return _muon(config, schedule)
        case AdafactorConfig():
            return optax.chain(_adafactor(config), *_decay_and_rate(decay, schedule))
        case SgdConfig(momentum=momentum, nesterov=nesterov):
            follow = optax.trace(momentum, nesterov) if momentum else optax.identity()
            return optax.chain(follow, *_decay_and_rate(decay, schedule))


def _decay_and_rate(decay: float, schedule: optax.Schedule) -> tuple[optax.GradientTransformation, ...]:
    return optax.add_decayed_weights(decay, _decayed), optax.scale_by_learning_rate(schedule)


def _adafactor(config: AdafactorConfig) -> optax.GradientTransformation:
    by_weights = optax.scale_by_param_block_rms() if config.scale_by_weights else optax.identity()
    return optax.chain(
        optax.scale_by_factored_rms(decay_rate=config.decay_rate),
        optax.clip_by_block_rms(config.clipping_threshold),
        by_weights,
    )


def _muon(config: MuonConfig, schedule: optax.Schedule) -> optax.GradientTransformation:
    decay = config.weight_decay
    matrices = muon(
        schedule,
        beta=config.momentum,
        weight_decay=decay,
        muon_weight_dimension_numbers=_LAST_TWO_AXES,
        consistent_rms=config.match_rms,
    )
    # The AdamW within optax's Muon looks ahead and decays norms too.
    others = optax.adamw(schedule, b1=config.beta1, b2=config.beta2, weight_decay=decay, mask=_decayed)
    return optax.partition({True: matrices, False: others}, _are_matrices)


def _decayed(weights: Mapping[str, object]) -> dict[str, bool]:
    """Stacked over layers, a norm's scale looks like a matrix: the name tells them apart."""
    return {name: name.rpartition(".")[2] not in _NOT_DECAYED for name in weights}


def _are_matrices(weights: Mapping[str, object]) -> dict[str, bool]:
    return {name: name.startswith("blocks.") and decayed for name, decayed in _decayed(weights).items()}
