"""Prefill and decode as one compiled function of fixed shapes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from stages.engine.models.attention import KeyValue, Part, attend_parts, tree_mask
from stages.engine.models.cache import (
    Cache,
    empty_response,
    make_decode_attend,
    make_prefill_attend,
    write_response,
)
from stages.engine.models.transformer import Decoder
from stages.engine.rollout.sampling import sample_tokens


class Generated(NamedTuple):
    """Responses of a batch, one row each; entries at and after `lengths` are meaningless.

    Attributes:
        tokens: the end token included.
        logprobs: of each token under the sampled distribution, in nats.
        lengths: tokens of each response.
        ended: whether the response closed with an end token, and was not cut off.
    """

    tokens: Int[Array, "rows R"]
    logprobs: Float[Array, "rows R"]
    lengths: Int[Array, " rows"]
    ended: Bool[Array, " rows"]


class _State(NamedTuple):
    step: Int[Array, ""]
    tokens: Int[Array, "rows R"]
    logprobs: Float[Array, "rows R"]
    lengths: Int[Array, " rows"]
    ended: Bool[Array, " rows"]
    cache: Cache


def generate(
    model: Decoder,
    prefix: Int[Array, " S"],
    prompts: Int[Array, "P T"],
    prompt_lengths: Int[Array, " P"],
    row_keys: Key[Array, "P G"],
    end_tokens: Int[Array, " E"],
    temperature: float,
    max_response_tokens: int,
) -> Generated:
    """Samples G responses to each prompt, until all have ended or `max_response_tokens` are drawn.

    Args:
        model: the policy.
        prefix: ids that all prompts begin with; may be empty.
        prompts: right-padded ids of what follows the prefix.
        prompt_lengths: at least 1.
        row_keys: a key for each response; G is their number for each prompt.
        end_tokens: any of these ends a response.
        temperature: see `sample_tokens`.
        max_response_tokens: R.

    Returns:
        Rows ordered by prompt, then by sample.
    """
    num_prompts, group_size = row_keys.shape
    rows, keys = num_prompts * group_size, row_keys.reshape(-1)
    prefix_cache = _prefill_prefix(model, prefix)
    last_hidden, prompt_cache = _prefill(model, prefix_cache, prompts, prompt_lengths)
    first, first_logprobs = sample_tokens(
        jnp.repeat(model.logits(last_hidden), group_size, axis=0), keys, jnp.int32(0), temperature
    )
    start = _State(
        step=jnp.int32(1),
        tokens=jnp.zeros((rows, max_response_tokens), jnp.int32).at[:, 0].set(first),
        logprobs=jnp.zeros((rows, max_response_tokens)).at[:, 0].set(first_logprobs),
        lengths=jnp.ones(rows, jnp.int32),
        ended=jnp.isin(first, end_tokens),
        cache=Cache(prefix_cache, prompt_cache, empty_response(model.arch, rows, max_response_tokens)),
    )
    graph, weights = nnx.split(model)

    def go_on(state: _State) -> Bool[Array, ""]:
        return (state.step < max_response_tokens) & ~jnp.all(state.ended)

    def decode(state: _State) -> _State:
        policy = nnx.merge(graph, weights)
        last = jax.lax.dynamic_slice_in_dim(state.tokens, state.step - 1, 1, axis=1)
        positions = prefix.shape[0] + jnp.repeat(prompt_lengths, group_size)[:, None] + state.step - 1
        attend = make_decode_attend(prompt_lengths, state.step - 1)
        hidden, new = policy(last, positions, attend, state.cache)
        drawn, drawn_logprobs = sample_tokens(policy.logits(hidden[:, 0]), keys, state.step, temperature)
        return _State(
            step=state.step + 1,
            tokens=jax.lax.dynamic_update_slice_in_dim(state.tokens, drawn[:, None], state.step, axis=1),
            logprobs=jax.lax.dynamic_update_slice_in_dim(state.logprobs, drawn_logprobs[:, None], state.step, axis=1),
            lengths=jnp.where(state.ended, state.lengths, state.lengths + 1),
            ended=state.ended | jnp.isin(drawn, end_tokens),
            cache=write_response(state.cache, new, state.step - 1),
        )

    end = jax.lax.while_loop(go_on, decode, start)
    return Generated(end.tokens, end.logprobs, end.lengths, end.ended)


def _prefill_prefix(model: Decoder, prefix: Int[Array, " S"]) -> KeyValue:
    causal = jnp.tri(prefix.shape[0], dtype=bool)[None]
    positions = jnp.arange(prefix.shape[0])[None]
    return model(prefix[None], positions, lambda _, q, k, v: attend_parts(q, [Part(k, v, causal)]))[1]


def _prefill(
    model: Decoder, prefix: KeyValue, prompts: Int[Array, "P T"], prompt_lengths: Int[Array, " P"]
) -> tuple[Float[Array, "P D"], KeyValue]:
    index = jnp.broadcast_to(jnp.arange(prompts.shape[1]), prompts.shape)
    mask = tree_mask((index < prompt_lengths[:, None]).astype(jnp.int32), jnp.zeros_like(prompts))
    start = prefix.key.shape[2]
    hidden, key_values = model(prompts, start + index, make_prefill_attend(mask), prefix)
    return jnp.take_along_axis(hidden, (prompt_lengths - 1)[:, None, None], axis=1)[:, 0], key_values
