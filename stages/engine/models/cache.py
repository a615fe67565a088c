"""Keys and values kept between calls, shared by all rows that have them in common."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from stages.engine.models.architecture import Architecture
from stages.engine.models.attention import KeyValue, Part, attend_parts


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


def empty_key_value(arch: Architecture, rows: int, length: int) -> KeyValue:
    """Room for `length` tokens of each row."""
    shape = (arch.num_layers, rows, length, arch.num_kv_heads, arch.head_size)
    return KeyValue(jnp.zeros(shape), jnp.zeros(shape))


def write_response(cache: Cache, new: KeyValue, step: Int[Array, ""]) -> Cache:
    """Stores one decode step's keys and values [L, P * G, 1, K, H] at index `step`."""

    def put(old: Array, value: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, value, step, axis=2)

    return cache._replace(response=KeyValue(put(cache.response.key, new.key), put(cache.response.value, new.value)))


def make_prefill_attend(mask: Bool[Array, "P T T"]) -> Callable[[KeyValue, Array, Array, Array], Array]:
    """Attention of prompts over the whole prefix, and over themselves under a mask."""

    def attend(prefix: KeyValue, q: Array, k: Array, v: Array) -> Float[Array, "P T N H"]:
        return attend_parts(q, [Part(prefix.key, prefix.value, _all(prefix)), Part(k, v, mask)])

    return attend


def make_decode_attend(
    prompt_lengths: Int[Array, " P"], step: Int[Array, ""]
) -> Callable[[Cache, Array, Array, Array], Array]:
    """Attention of one new token a row over prefix, prompt, the `step` response tokens before it, and itself."""

    def attend(cache: Cache, q: Array, k: Array, v: Array) -> Float[Array, "rows 1 N H"]:
        group_size = q.shape[0] // prompt_lengths.shape[0]
        lengths = jnp.repeat(prompt_lengths, group_size)[:, None, None]
        in_prompt = jnp.arange(cache.prompt.key.shape[1]) < lengths
        written = (jnp.arange(cache.response.key.shape[1]) < step)[None, None]
        parts = [
            Part(cache.prefix.key, cache.prefix.value, _all(cache.prefix)),
            Part(cache.prompt.key, cache.prompt.value, in_prompt),
            Part(cache.response.key, cache.response.value, written),
            Part(k, v, jnp.ones((1, 1, 1), bool)),
        ]
        return attend_parts(q, parts)

    return attend


def _all(part: KeyValue) -> Bool[Array, "1 1 S"]:
    return jnp.ones((1, 1, part.key.shape[1]), bool)
