"""Prefill and decode as one function of fixed shapes, to be compiled whole."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from stages.engine.models.transformer import Decoder
from stages.engine.rollout.native.decode import DecodeState, Draw, first_tokens, next_tokens
from stages.engine.rollout.native.prefill import Prompts, prefill


class Generated(NamedTuple):
    """Responses, rows ordered by prompt, then by sample; see `DecodeState`."""

    tokens: Int[Array, "rows R"]
    logprobs: Float[Array, "rows R"]
    lengths: Int[Array, " rows"]
    ended: Bool[Array, " rows"]


def generate(model: Decoder, prompts: Prompts, draw: Draw) -> Generated:
    """Samples responses until all have ended or are as long as there are numbers to draw with.

    Args:
        model: the policy.
        prompts: P of them.
        draw: with P * G rows, for G responses to each prompt, of at most R tokens.
    """
    # Modules do not cross the loop's boundary, weights do.
    graph, weights = nnx.split(model)

    def go_on(state: DecodeState) -> Bool[Array, ""]:
        return (state.step < draw.uniforms.shape[1]) & ~jnp.all(state.ended)

    def step(state: DecodeState) -> DecodeState:
        return next_tokens(nnx.merge(graph, weights), prompts, draw, state)

    start = first_tokens(model, prefill(model, prompts), draw)
    end = jax.lax.while_loop(go_on, step, start)
    return Generated(end.tokens, end.logprobs, end.lengths, end.ended)
