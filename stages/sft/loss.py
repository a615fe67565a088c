"""The loss of supervised fine-tuning."""

import jax.numpy as jnp

from stages.engine.data.batching import Batch
from stages.engine.models.config import Remat
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Graph, Weights, bind
from stages.engine.models.transformer import Cells
from stages.engine.training.step import Loss, LossFunction


def make_sft_loss(graph: Graph, remat: Remat = "none") -> LossFunction[Batch]:
    """Negative log-likelihood of the targets in nats: the sum, and the number of targets."""

    def loss(weights: Weights, base: Cells, batch: Batch) -> Loss:
        logprobs = score_targets(bind(graph, weights, base), batch, remat=remat)
        nll = -jnp.sum(jnp.where(batch.target_mask, logprobs, 0.0))
        return Loss(nll, jnp.sum(batch.target_mask, dtype=jnp.float32), {})

    return loss
