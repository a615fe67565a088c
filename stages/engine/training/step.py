"""Gradients as sums with a denominator, and the update that divides them.

Accumulated over any split of a batch, sum of gradients over sum of denominators is the whole batch's gradient.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.programs import compiled
from stages.engine.models.axes import keep_moments, keep_weights
from stages.engine.models.lora import Weights
from stages.engine.models.transformer import Cells
from stages.engine.training.optimizer import UpdateRule
from stages.engine.training.state import OptimizerState

BatchT = TypeVar("BatchT")


class Loss(NamedTuple):
    """A loss that is not yet reduced.

    Attributes:
        total: sum over the batch.
        denominator: what the sum is divided by once all parts are added.
        sums: further sums over the same denominator, for metrics.
    """

    total: Float[Array, ""]
    denominator: Float[Array, ""]
    sums: dict[str, Float[Array, ""]]


class Gradient(NamedTuple):
    """A loss with the gradient of its total."""

    loss: Loss
    weights: Weights


class Applied(NamedTuple):
    """What one update gives.

    Attributes:
        weights: after the update.
        optimizer: its state after the update.
        grad_norm: global norm of the averaged gradient, before clipping.
        learning_rate: of the update.
        skipped: updates skipped so far; unlike that of the optimizer's state, no later update overwrites it.
    """

    weights: Weights
    optimizer: OptimizerState
    grad_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]
    skipped: Float[Array, ""]


LossFunction = Callable[[Weights, Cells, BatchT], Loss]
"""From trained weights, frozen weights and a batch."""


def make_gradient(
    loss_function: LossFunction[BatchT], cluster: Cluster = ALONE
) -> Callable[[Weights, Cells, BatchT], Gradient]:
    """A compiled function from trained weights, frozen weights and a batch to its gradient.

    The devices of a cluster share the rows and get the sum over all of them.
    """

    def total(weights: Weights, base: Cells, batch: BatchT) -> tuple[Float[Array, ""], Loss]:
        loss = loss_function(weights, base, batch)
        return loss.total, loss

    def gradient(weights: Weights, base: Cells, batch: BatchT) -> Gradient:
        weights_gradient, loss = jax.grad(total, has_aux=True)(weights, base, batch)
        return Gradient(loss, keep_weights(cluster, weights_gradient))

    return compiled(cluster, gradient)


@partial(jax.jit, donate_argnums=0)
def add_gradients(first: Gradient, second: Gradient) -> Gradient:
    """Sums of two parts of a batch; the first is overwritten."""
    return jax.tree.map(jnp.add, first, second)


def make_update(rule: UpdateRule, cluster: Cluster = ALONE) -> Callable[[Weights, OptimizerState, Gradient], Applied]:
    """A compiled function that divides a gradient by its denominator and applies it.

    Where loss or gradient is no finite number, weights and moments stay, and the update counts as skipped. They stay
    too where the denominator is 0: there was nothing to learn. Weights and optimizer state are overwritten. The devices
    of a cluster share the work as they share the optimizer's state; the norm is that of one device.
    """

    def update(weights: Weights, state: OptimizerState, gradient: Gradient) -> Applied:
        denominator = _divisor(gradient.loss)
        averaged = keep_weights(cluster, jax.tree.map(lambda g: g / denominator, gradient.weights))
        norm = optax.tree.norm(averaged)
        finite = jnp.isfinite(norm) & jnp.isfinite(gradient.loss.total)
        changes, moments = rule.transform.update(averaged, state.moments, weights)
        moved = jax.tree.map(jnp.add, weights, changes)
        average = _averaged(state.average, moved, rule.ema_decay)
        old, new = (weights, state.moments, state.average), (moved, moments, average)
        applied = finite & (gradient.loss.denominator > 0)
        moved, moments, average = jax.tree.map(partial(jnp.where, applied), new, old)
        after = OptimizerState(
            keep_moments(cluster, moments),
            keep_weights(cluster, average),
            state.applied + applied.astype(jnp.int32),
            state.skipped + (~finite).astype(jnp.int32),
        )
        rate, skipped = jnp.asarray(rule.schedule(state.applied)), after.skipped.astype(jnp.float32)
        return Applied(keep_weights(cluster, moved), after, norm, rate, skipped)

    return jax.jit(update, donate_argnums=(0, 1))


def _divisor(loss: Loss) -> Float[Array, ""]:
    """What sums are divided by; sums over nothing are 0, and so are their means."""
    return jnp.where(loss.denominator > 0, loss.denominator, 1.0)


def _averaged(average: Weights, weights: Weights, decay: float | None) -> Weights:
    return jax.tree.map(lambda mean, new: decay * mean + (1 - decay) * new, average, weights) if decay else {}


@jax.jit
def add_losses(first: Loss, second: Loss) -> Loss:
    """Sums of two parts of a batch."""
    return jax.tree.map(jnp.add, first, second)


@jax.jit
def loss_means(losses: list[Loss]) -> dict[str, Float[Array, ""]]:
    """The loss as `loss/total` and its further sums by name, each over the denominator of all parts together."""
    whole = reduce(lambda first, second: jax.tree.map(jnp.add, first, second), losses)
    return {name: total / _divisor(whole) for name, total in {"loss/total": whole.total, **whole.sums}.items()}
