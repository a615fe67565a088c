"""Drawing a token, with its log-probability under the distribution it was drawn from.

Random numbers come from a counter-based generator on the host: compiled functions hold none, and a response's numbers
depend on what it is a sample of, and on nothing else.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from stages.engine.data.uniforms import uniforms
from stages.engine.objectives.logprobs import target_logprobs

_BLOCK = 128
"""The vocabulary is searched in two levels, blocks of this size first: summing it token by token would be slow."""


def row_uniforms(
    seed: int, step: int, prompt_ids: Sequence[int], group_size: int, num_tokens: int
) -> Float32[np.ndarray, "P G R"]:
    """Numbers in [0, 1) for each token, a function of (seed, step, prompt id, sample index, token index) alone.

    Philox (Salmon et al. 2011) with seed and step as its key, and the other three as its counter.
    """
    drawn = [
        [
            uniforms(np.random.Philox(key=(seed, step), counter=(0, sample, prompt_id, 0)), num_tokens)
            for sample in range(group_size)
        ]
        for prompt_id in prompt_ids
    ]
    return np.array(drawn, np.float32)


def sample_tokens(
    logits: Float[Array, "rows V"], uniforms: Float[Array, " rows"], temperature: float
) -> tuple[Int[Array, " rows"], Float[Array, " rows"]]:
    """Draws one token a row from softmax(logits / temperature); temperature 0 takes the largest logit.

    Returns:
        Tokens, and their log-probabilities in nats under the sampled distribution (at temperature 0, under
        softmax(logits): the distribution sampled is then a point).
    """
    if temperature == 0:
        tokens = jnp.argmax(logits, axis=-1)
        return tokens, target_logprobs(logits, tokens)
    scaled = logits / temperature
    tokens = _invert(jnp.exp(scaled - scaled.max(axis=-1, keepdims=True)), uniforms)
    return tokens, target_logprobs(scaled, tokens)


def _invert(weights: Float[Array, "rows V"], uniforms: Float[Array, " rows"]) -> Int[Array, " rows"]:
    """The first token at which the running sum of weights passes uniform * total."""
    rows, size = weights.shape
    blocks = jnp.pad(weights, ((0, 0), (0, -size % _BLOCK))).reshape(rows, -1, _BLOCK)
    block_sums = jnp.cumsum(blocks.sum(axis=-1), axis=-1)
    wanted = uniforms * block_sums[:, -1]
    block = jnp.minimum((block_sums <= wanted[:, None]).sum(axis=-1), blocks.shape[1] - 1)[:, None]
    before = jnp.where(block > 0, jnp.take_along_axis(block_sums, jnp.maximum(block - 1, 0), axis=-1), 0.0)
    inside = jnp.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    index = (before + jnp.cumsum(inside, axis=-1) <= wanted[:, None]).sum(axis=-1)
    # The two sums round apart: never run past the last token that can be drawn.
    last = _BLOCK - 1 - jnp.argmax(inside[:, ::-1] > 0, axis=-1)
    return block[:, 0] * _BLOCK + jnp.minimum(index, last)
