"""Keys and values kept between calls, shared by all rows that have them in common."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Int

from stages.engine.models.architecture import Architecture
from stages.engine.models.attention import KeyValue, Part
from stages.engine.models.transformer import LayerLook


class Cache(NamedTuple):
    """Keys and values of all layers, P prompts and G responses to each.

    Attributes:
        prefix: [L, 1, S, K, H], of what all prompts begin with.
        prompt: [L, P, T, K, H], of the rest of each prompt.
        response: [L, P * G, R, K, H].
    """

    prefix: KeyValue
    prompt: KeyValue
    response: KeyValue


def empty_key_value(arch: Architecture, rows: int, length: int, dtype: DTypeLike) -> KeyValue:
    """Room for `length` tokens of each row."""
    shape = (arch.num_layers, rows, length, arch.num_kv_heads, arch.head_size)
    return KeyValue(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def write_response(cache: Cache, new: KeyValue, step: Int[Array, ""]) -> Cache:
    """Stores one decode step's keys and values [L, P * G, 1, K, H] at index `step`."""

    def put(old: Array, value: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, value, step, axis=2)

    return cache._replace(response=KeyValue(put(cache.response.key, new.key), put(cache.response.value, new.value)))


def look_at_tokens(mask: Bool[Array, "#B T T"], positions: Int[Array, "#B T"]) -> LayerLook:
    """Tokens that meet each other under a mask, and nothing else."""
    return lambda _, k, v: [Part(k, v, mask, positions)]


def look_at_prompts(mask: Bool[Array, "P T T"], positions: Int[Array, "P T"]) -> LayerLook:
    """Prompts over the whole prefix, which is the layer's cache, and over themselves under a mask."""

    def look(prefix: KeyValue, k: Array, v: Array) -> list[Part]:
        return [_whole(prefix), Part(k, v, mask, positions)]

    return look


def look_at_responses(prompt_lengths: Int[Array, " P"], step: Int[Array, ""]) -> LayerLook:
    """One new token a row over prefix, prompt, the `step` response tokens before it, and itself."""

    def look(cache: Cache, k: Array, v: Array) -> list[Part]:
        start, prompt_width = cache.prefix.key.shape[1], cache.prompt.key.shape[1]
        lengths = jnp.repeat(prompt_lengths, k.shape[0] // prompt_lengths.shape[0])[:, None]
        in_prompt, in_response = jnp.arange(prompt_width), jnp.arange(cache.response.key.shape[1])
        return [
            _whole(cache.prefix),
            Part(*cache.prompt, (in_prompt < lengths)[:, None], (start + in_prompt)[None]),
            Part(*cache.response, (in_response < step)[None, None], start + lengths + in_response),
            Part(k, v, jnp.ones((1, 1, 1), bool), start + lengths + step),
        ]

    return look


def _whole(part: KeyValue) -> Part:
    keys = part.key.shape[1]
    return Part(*part, jnp.ones((1, 1, keys), bool), jnp.arange(keys)[None])
