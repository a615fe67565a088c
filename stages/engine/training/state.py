"""What a training stage must carry from step to step, and so from attempt to attempt."""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, UInt32

from stages.engine.models.lora import Weights
from stages.errors import UserError


class Counters(NamedTuple):
    """Where a run stands.

    Attributes:
        step: steps done.
        updates: optimizer updates applied; fewer than `step` where a step had nothing to learn from.
        rows: rows of the dataset used, in the order that seed and counter define.
        tokens: target tokens trained on.
        seed: of all randomness, which is a function of it and the counters.
    """

    step: UInt32[Array, ""]
    updates: UInt32[Array, ""]
    rows: UInt32[Array, ""]
    tokens: UInt32[Array, ""]
    seed: UInt32[Array, ""]


class TrainState(NamedTuple):
    """Trained weights, the optimizer's moments, and the counters."""

    weights: Weights
    optimizer: optax.OptState
    counters: Counters


def start_state(weights: Weights, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """The state before the first step."""
    zero = jnp.uint32(0)
    return TrainState(weights, optimizer.init(weights), Counters(zero, zero, zero, zero, jnp.uint32(seed)))


def advance(counters: Counters, *, updates: int, rows: int, tokens: int) -> Counters:
    """The counters after one more step."""
    return counters._replace(
        step=counters.step + 1,
        updates=counters.updates + updates,
        rows=counters.rows + rows,
        tokens=counters.tokens + tokens,
    )


def check_restored(counters: Counters, step: int, seed: int) -> None:
    """Checks that a checkpoint is what its record says.

    Raises:
        UserError: the step or the seed inside differs.
    """
    if (int(counters.step), int(counters.seed)) != (step, seed):
        raise UserError(
            f"checkpoint of step {step} with seed {seed} holds step {int(counters.step)} and seed {int(counters.seed)}"
        )
