"""What is read off a decoder's hidden states."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from stages.engine.data.batching import Batch
from stages.engine.models.attention import tree_mask
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.transformer import Decoder
from stages.engine.objectives.logprobs import target_logprobs


def score_targets(model: Decoder, batch: Batch, temperature: float = 1.0) -> Float[Array, "B R"]:
    """Log-probabilities of a batch's targets in nats, under softmax(logits / temperature).

    Logits exist at targets only, never for the whole row. Entries outside `target_mask` are meaningless.
    """
    mask = tree_mask(jnp.asarray(batch.segment_ids), jnp.asarray(batch.branch_ids))
    positions = jnp.asarray(batch.positions)
    hidden, _ = model(jnp.asarray(batch.tokens), positions, look_at_tokens(mask, positions))
    sources = jnp.asarray(batch.target_sources)[:, :, None]
    logits = model.logits(jnp.take_along_axis(hidden, sources, axis=1))
    return target_logprobs(logits, jnp.asarray(batch.targets), temperature)
