"""What a training stage must carry from step to step, and so from attempt to attempt."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int32

from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.models.axes import keep_moments, place_weights
from stages.engine.models.lora import Weights
from stages.engine.training.optimizer import UpdateRule
from stages.errors import UserError


class Counters(NamedTuple):
    """Where a run stands.

    Attributes:
        step: steps done.
        updates: optimizer updates made, skipped ones too; fewer than `step` where a step had nothing to learn from.
        rows: rows of the dataset used, in the order that seed and counter define.
        tokens: target tokens trained on.
        seed: of all randomness, which is a function of it and the counters.
    """

    step: int
    updates: int
    rows: int
    tokens: int
    seed: int


class OptimizerState(NamedTuple):
    """What updates leave for the next.

    Attributes:
        moments: of the optimizer.
        average: running mean of the weights; empty where none is kept.
        applied: updates that moved the weights.
        skipped: updates that did not, because loss or gradient was no finite number.
    """

    moments: optax.OptState
    average: Weights
    applied: Int32[Array, ""]
    skipped: Int32[Array, ""]


class Best(NamedTuple):
    """What evaluations during training have found so far.

    Attributes:
        loss: lowest of all evaluations.
        step: at which it was found; 0 before the first evaluation.
        since: evaluations since then.
        weights: that gave it; empty where only the last ones are wanted.
    """

    loss: float
    step: int
    since: int
    weights: Weights


class TrainState(NamedTuple):
    """Trained weights, what the optimizer needs, the best so far, and the counters."""

    weights: Weights
    optimizer: OptimizerState
    best: Best
    counters: Counters


def start_state(
    weights: Weights, rule: UpdateRule, seed: int, cluster: Cluster = ALONE, *, keep_best: bool = False
) -> TrainState:
    """The state before the first step; each device of a cluster has its part of weights and moments.

    It is a copy of the weights: updates overwrite the state that they are given.
    """

    def start(weights: Weights) -> OptimizerState:
        moments = keep_moments(cluster, rule.transform.init(weights))
        average = weights if rule.ema_decay else {}
        return OptimizerState(moments, average, jnp.int32(0), jnp.int32(0))

    def copied(weights: Weights) -> Weights:
        return jax.tree.map(jnp.copy, weights)

    weights = copied(place_weights(cluster, weights))
    best = Best(float("inf"), 0, 0, copied(weights) if keep_best else {})
    return TrainState(weights, jax.jit(start)(weights), best, Counters(0, 0, 0, 0, seed))


def evaluated_weights(state: TrainState) -> Weights:
    """The weights that stand for the state: their running mean where one is kept."""
    return state.optimizer.average or state.weights


def final_weights(state: TrainState) -> Weights:
    """The weights to write: the best where they are kept, else those at the end."""
    return state.best.weights or evaluated_weights(state)


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
