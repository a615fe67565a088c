"""Responses token by token: the state of a batch, and the step that adds one token to each row."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from stages.engine.models.cache import Cache, empty_key_value, look_at_responses, write_response
from stages.engine.models.transformer import Decoder
from stages.engine.rollout.native.prefill import Prefilled, Prompts
from stages.engine.rollout.sampling import sample_tokens


class Draw(NamedTuple):
    """How tokens are drawn.

    Attributes:
        uniforms: a number in [0, 1) for each token.
        end_tokens: any of these ends a response.
        temperature: see `sample_tokens`.
    """

    uniforms: Float[Array, "rows R"]
    end_tokens: Int[Array, " E"]
    temperature: float


class DecodeState(NamedTuple):
    """A batch of responses in the making; entries at and after `lengths` are meaningless.

    Attributes:
        step: tokens drawn so far, by rows that have ended too.
        tokens: drawn so far.
        logprobs: of each token under the sampled distribution, in nats.
        lengths: of each response, its end token included.
        ended: whether the response closed with an end token.
        cache: of all tokens but the last one drawn.
    """

    step: Int[Array, ""]
    tokens: Int[Array, "rows R"]
    logprobs: Float[Array, "rows R"]
    lengths: Int[Array, " rows"]
    ended: Bool[Array, " rows"]
    cache: Cache


def first_tokens(model: Decoder, prefilled: Prefilled, draw: Draw) -> DecodeState:
    """Draws the first token of each row; a prompt's logits serve all rows of its group."""
    rows, max_response_tokens = draw.uniforms.shape
    logits = jnp.repeat(model.logits(prefilled.last_hidden), rows // prefilled.last_hidden.shape[0], axis=0)
    tokens, logprobs = sample_tokens(logits, draw.uniforms[:, 0], draw.temperature)
    room = empty_key_value(model.arch, rows, max_response_tokens, prefilled.rest.key.dtype)
    return DecodeState(
        step=jnp.int32(1),
        tokens=jnp.zeros((rows, max_response_tokens), jnp.int32).at[:, 0].set(tokens),
        logprobs=jnp.zeros((rows, max_response_tokens)).at[:, 0].set(logprobs),
        lengths=jnp.ones(rows, jnp.int32),
        ended=jnp.isin(tokens, draw.end_tokens),
        cache=Cache(prefilled.prefix, prefilled.rest, room),
    )


def next_tokens(model: Decoder, prompts: Prompts, draw: Draw, state: DecodeState) -> DecodeState:
    """Reads each row's last token and draws the next."""
    last = state.step - 1
    tokens = jax.lax.dynamic_slice_in_dim(state.tokens, last, 1, axis=1)
    group_size = tokens.shape[0] // prompts.lengths.shape[0]
    positions = prompts.prefix.shape[0] + jnp.repeat(prompts.lengths, group_size)[:, None] + last
    hidden, new = model(tokens, positions, look_at_responses(prompts.lengths, last), state.cache)
    uniforms = jax.lax.dynamic_index_in_dim(draw.uniforms, state.step, axis=1, keepdims=False)
    drawn, logprobs = sample_tokens(model.logits(hidden[:, 0]), uniforms, draw.temperature)
    return DecodeState(
        step=state.step + 1,
        tokens=jax.lax.dynamic_update_slice_in_dim(state.tokens, drawn[:, None], state.step, axis=1),
        logprobs=jax.lax.dynamic_update_slice_in_dim(state.logprobs, logprobs[:, None], state.step, axis=1),
        lengths=jnp.where(state.ended, state.lengths, state.lengths + 1),
        ended=state.ended | jnp.isin(drawn, draw.end_tokens),
        cache=write_response(state.cache, new, last),
    )
