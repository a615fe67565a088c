"""The loss of a student that learns from a teacher."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from stages.distillation.config import DistillationConfig, ForwardKlConfig, JsdConfig, ReverseKlConfig
from stages.engine.data.batching import Batch
from stages.engine.data.top_tokens import TopTokensBatch
from stages.engine.models.dropout import TokenNumbers, make_dropout
from stages.engine.models.heads import outputs_at_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.objectives.distillation import (
    Divergence,
    TopTokens,
    distillation_losses,
    forward_kl,
    generalised_jsd,
    reverse_kl,
    top_losses,
)
from stages.engine.objectives.projection import Head, Outputs
from stages.engine.training.step import Loss, LossFunction

STUDENT, TEACHER = "student", "teacher"
"""Parts of what is frozen: the student's base, and the matrix that the teacher's hidden states are multiplied with."""


class DistillationBatch(NamedTuple):
    """A micro-batch, with what the teacher makes of it.

    Attributes:
        batch: as both models read it.
        numbers: of its tokens, where adapters drop inputs.
        teacher: its hidden states before the targets, or the tokens that it had for them; none until it has read the
            batch.
    """

    batch: Batch
    numbers: TokenNumbers | None
    teacher: Float[Array, "B R D"] | TopTokensBatch | None


def with_teacher(base: Cells, matrix: Float[Array, "_ _"] | None) -> Cells:
    """What the loss reads and does not train; a teacher whose tokens were kept has no matrix."""
    return nnx.State({STUDENT: base} if matrix is None else {STUDENT: base, TEACHER: {"matrix": matrix}})


def make_distillation_loss(
    graph: Graph, config: DistillationConfig, teacher: Head | None, num_tokens: int
) -> LossFunction[DistillationBatch]:
    """The divergence at each target in nats times the temperature's square: the sum, and the number of targets.

    Args:
        graph: of the student.
        config: of the stage.
        teacher: what stands between its logits and its hidden states, where it reads batches.
        num_tokens: of the tokenizer that both have.
    """
    divergence = divergence_of(config.divergence)

    def loss(weights: Weights, base: Cells, given: DistillationBatch) -> Loss:
        batch, numbers, found = given
        dropped = make_dropout(batch, numbers, config.adapter_dropout, config.seed)
        model = bind(graph, weights, base[STUDENT], dropped)
        student = outputs_at_targets(model, batch, config.temperature, config.model.remat)
        if isinstance(found, TopTokensBatch):
            top = TopTokens(jnp.asarray(found.ids), jnp.asarray(found.logprobs))
            losses = top_losses(divergence, top, student, num_tokens)
        else:
            matrix = base[TEACHER]["matrix"]
            assert found is not None
            assert teacher is not None
            assert isinstance(matrix, jax.Array)
            losses = distillation_losses(divergence, Outputs(found, matrix, teacher), student, num_tokens)
        total = jnp.sum(jnp.where(batch.target_mask, losses, 0.0))
        return Loss(total, jnp.sum(batch.target_mask, dtype=jnp.float32), {})

    return loss


def divergence_of(config: ForwardKlConfig | ReverseKlConfig | JsdConfig) -> Divergence:
    """The function that the settings name."""
    if config.kind == "jsd":
        return partial(generalised_jsd, beta=config.beta)
    return forward_kl if config.kind == "forward_kl" else reverse_kl
