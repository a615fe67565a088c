"""What a training stage must carry from step to step, and so from attempt to attempt."""

from typing import NamedTuple

import jax
import optax

from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.models.axes import keep_moments, place_weights
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

    step: int
    updates: int
    rows: int
    tokens: int
    seed: int


class TrainState(NamedTuple):
    """Trained weights, the optimizer's moments, and the counters."""

    weights: Weights
    optimizer: optax.OptState
    counters: Counters


def start_state(
    weights: Weights, optimizer: optax.GradientTransformation, seed: int, cluster: Cluster = ALONE
) -> TrainState:
    """The state before the first step; each device of a cluster has its part of weights and moments."""

    def start(weights: Weights) -> optax.OptState:
        return keep_moments(cluster, optimizer.init(weights))

    weights = place_weights(cluster, weights)
    return TrainState(weights, jax.jit(start)(weights), Counters(0, 0, 0, 0, seed))


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
    if (counters.step, counters.seed) != (step, seed):
        raise UserError(
            f"checkpoint of step {step} with seed {seed} holds step {counters.step} and seed {counters.seed}"
        )
