"""Keys and values of prompts, and what their first responses' tokens are drawn from."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.engine.models.attention import KeyValue, tree_mask
from stages.engine.models.cache import empty_key_value, look_at_prompts, look_at_tokens
from stages.engine.models.transformer import Decoder


class Prompts(NamedTuple):
    """P prompts in ids.

    Attributes:
        prefix: what all of them begin with; may be empty.
        rest: right-padded, what follows the prefix.
        lengths: of the rests, at least 1.
    """

    prefix: Int[Array, " S"]
    rest: Int[Array, "P T"]
    lengths: Int[Array, " P"]


class Prefilled(NamedTuple):
    """Prompts as the model has read them.

    Attributes:
        last_hidden: hidden state of each prompt's last token.
        prefix: keys and values of the common prefix, one row.
        rest: keys and values of the rests.
    """

    last_hidden: Float[Array, "P D"]
    prefix: KeyValue
    rest: KeyValue


def prefill(model: Decoder, prompts: Prompts) -> Prefilled:
    """Reads the prefix once, then every prompt's rest."""
    prefix = _prefill_prefix(model, prompts.prefix)
    index = jnp.broadcast_to(jnp.arange(prompts.rest.shape[1]), prompts.rest.shape)
    mask = tree_mask((index < prompts.lengths[:, None]).astype(jnp.int32), jnp.zeros_like(prompts.rest))
    positions = prompts.prefix.shape[0] + index
    hidden, rest = model(prompts.rest, positions, look_at_prompts(mask, positions), prefix)
    last = (prompts.lengths - 1)[:, None, None]
    return Prefilled(jnp.take_along_axis(hidden, last, axis=1)[:, 0], prefix, rest)


def _prefill_prefix(model: Decoder, prefix: Int[Array, " S"]) -> KeyValue:
    if not prefix.shape[0]:
        return empty_key_value(model.arch, 1, 0, model.embed.embedding[...].dtype)
    causal = jnp.tri(prefix.shape[0], dtype=bool)[None]
    positions = jnp.arange(prefix.shape[0])[None]
    return model(prefix[None], positions, look_at_tokens(causal, positions))[1]
