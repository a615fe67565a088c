"""The loss of supervised fine-tuning."""

import jax.numpy as jnp

from stages.engine.data.batching import Batch
from stages.engine.models.config import Remat
from stages.engine.models.dropout import NumberedBatch, make_dropout
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.training.step import Loss, LossFunction


def make_sft_loss(
    graph: Graph, remat: Remat = "none", dropout: float = 0.0, seed: int = 0
) -> LossFunction[Batch | NumberedBatch]:
    """Negative log-likelihood of the targets in nats: the sum, and the number of targets.

    Args:
        graph: of the decoder.
        remat: what its backward pass computes again.
        dropout: share of their inputs that adapters drop where a batch's tokens are numbered.
        seed: of what is dropped.
    """

    def loss(weights: Weights, base: Cells, given: Batch | NumberedBatch) -> Loss:
        if isinstance(given, NumberedBatch):
            batch, numbers = given
        else:
            batch, numbers = given, None
        dropped = make_dropout(batch, numbers, dropout, seed)
        logprobs = score_targets(bind(graph, weights, base, dropped), batch, remat=remat)
        nll = -jnp.sum(jnp.where(batch.target_mask, logprobs, 0.0))
        return Loss(nll, jnp.sum(batch.target_mask, dtype=jnp.float32), {"loss/nll": nll})

    return loss
