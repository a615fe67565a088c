"""What is read off a decoder's hidden states."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stages.engine.data.batching import Batch
from stages.engine.models.attention import tree_mask
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.config import Remat
from stages.engine.models.transformer import Decoder
from stages.engine.objectives.chunked_logprobs import chunked_logprobs
from stages.engine.objectives.projection import Head, Outputs


def score_targets(model: Decoder, batch: Batch, temperature: float = 1.0, remat: Remat = "none") -> Float[Array, "B R"]:
    """Log-probabilities of a batch's targets in nats, under softmax(logits / temperature).

    Logits exist at targets only, and for a part of them at a time. Entries outside `target_mask` are meaningless.
    A gradient computes again what `remat` says.
    """
    hidden, matrix, head = outputs_at_targets(model, batch, temperature, remat)
    return chunked_logprobs(
        hidden,
        matrix,
        jnp.asarray(batch.targets),
        vocab_axis=head.vocab_axis,
        temperature=temperature,
        soft_cap=head.soft_cap,
    )


def outputs_at_targets(model: Decoder, batch: Batch, temperature: float = 1.0, remat: Remat = "none") -> Outputs:
    """What the distributions of a batch's targets are made of; entries outside `target_mask` are meaningless."""
    matrix, head = output_head(model, temperature)
    return Outputs(_before_targets(model, batch, remat), matrix, head)


def output_head(model: Decoder, temperature: float = 1.0) -> tuple[Float[Array, "_ _"], Head]:
    """The matrix that hidden states are multiplied with, and what is done then."""
    cap = model.arch.final_soft_cap
    if model.arch.tied_embeddings:
        return model.embed.embedding[...], Head(0, temperature, cap)
    return model.lm_head.kernel[...], Head(1, temperature, cap)


def value_targets(
    model: Decoder, head: Float[Array, "D 1"], batch: Batch, remat: Remat = "none"
) -> Float[Array, "B R"]:
    """What a head makes of the hidden states before a batch's targets, in float32.

    Entries outside `target_mask` are meaningless. A gradient computes again what `remat` says.
    """
    hidden = _before_targets(model, batch, remat).astype(jnp.float32)
    return jnp.matmul(hidden, head.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)[..., 0]


def _before_targets(model: Decoder, batch: Batch, remat: Remat) -> Float[Array, "B R D"]:
    mask = tree_mask(jnp.asarray(batch.segment_ids), jnp.asarray(batch.branch_ids))
    positions = jnp.asarray(batch.positions)
    hidden, _ = model(jnp.asarray(batch.tokens), positions, look_at_tokens(mask, positions), remat=remat)
    return jnp.take_along_axis(hidden, jnp.asarray(batch.target_sources)[:, :, None], axis=1)
