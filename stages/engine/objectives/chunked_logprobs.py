"""Log-probabilities of targets from hidden states, without the logits of all tokens at once.

Logits exist for a chunk of tokens at a time. The forward pass that is differentiated keeps, for each token, the
derivative of its log-probability by its hidden state, which is all that a frozen output matrix asks of the backward
pass. The gradient of the matrix computes logits again, chunk by chunk, or keeps them where they are one chunk; it is
compiled only where something reads it.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.engine.objectives.logprobs import target_logprobs
from stages.engine.objectives.projection import Head, by_matrix, contract, cut, join, num_chunks, project

CHUNK_ENTRIES = 2**25
"""Logits that exist at once, all rows of a batch together: 128 MiB in float32."""


class _Kept(NamedTuple):
    """What the backward pass reads: of it, only `by_hidden` under a frozen matrix."""

    hidden: Array
    matrix: Array
    targets: Array
    log_total: Array
    by_hidden: Array
    logits: Array | None


def chunked_logprobs(
    hidden: Float[Array, "B R D"],
    matrix: Float[Array, "_ _"],
    targets: Int[Array, "B R"],
    *,
    vocab_axis: int = 0,
    temperature: float = 1.0,
    soft_cap: float | None = None,
) -> Float[Array, "B R"]:
    """Log-probability of each target in nats, in float32, under softmax(cap(hidden · matrix) / temperature).

    Products of short types are summed in float32. Chunks lie along R and hold all rows, so that rows may be divided
    over devices, and the vocabulary too. The second derivative does not exist.

    Args:
        hidden: of the tokens before the targets.
        matrix: of shape (V, D), as an embedding, or (D, V), as a kernel.
        targets: ids below V.
        vocab_axis: axis of the matrix that is V.
        temperature: that of the sampler, above 0.
        soft_cap: logits x become soft_cap · tanh(x / soft_cap) (Gemma 2, arXiv 2408.00118), if given.
    """
    return _logprobs(hidden, matrix, targets, Head(vocab_axis, temperature, soft_cap))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _logprobs(hidden: Array, matrix: Array, targets: Array, head: Head) -> Array:
    def of_chunk(chunk: tuple[Array, Array]) -> Array:
        return target_logprobs(project(chunk[0], matrix, head), chunk[1], head.temperature)

    chunks = _num_chunks(targets, matrix, head)
    found = jax.lax.map(of_chunk, (cut(hidden, chunks), cut(targets, chunks)))
    return join(found, targets.shape)


def _forward(hidden: Array, matrix: Array, targets: Array, head: Head) -> tuple[Array, _Kept]:
    chunks = _num_chunks(targets, matrix, head)

    def of_chunk(chunk: tuple[Array, Array]) -> tuple[Array, Array, Array, Array | None]:
        hidden_ND, targets_N = chunk
        logits = project(hidden_ND, matrix, head)
        log_total = jax.nn.logsumexp(logits / head.temperature, axis=-1)
        slopes = _slopes(logits, log_total, targets_N, head).astype(matrix.dtype)
        by_hidden = contract("nv,vd->nd", slopes, matrix, head) / head.temperature
        found = jnp.take_along_axis(logits, targets_N[:, None], axis=-1)[:, 0] / head.temperature - log_total
        return found, log_total, by_hidden.astype(hidden.dtype), logits if chunks == 1 else None

    *parts, logits = jax.lax.map(of_chunk, (cut(hidden, chunks), cut(targets, chunks)))
    found, log_total, by_hidden = (join(part, targets.shape) for part in parts)
    return found, _Kept(hidden, matrix, targets, log_total, by_hidden, logits)


def _backward(head: Head, kept: _Kept, cotangent: Array) -> tuple[Array, Array, None]:
    hidden, matrix, targets, log_total, by_hidden, logits = kept

    def add_chunk(total: Array, chunk: tuple[tuple[Array, ...], Array | None]) -> tuple[Array, None]:
        (hidden_ND, targets_N, log_total_N, cotangent_N), logits_NV = chunk
        logits_NV = project(hidden_ND, matrix, head) if logits_NV is None else logits_NV
        slopes = _slopes(logits_NV, log_total_N, targets_N, head)
        weighted = hidden_ND * (cotangent_N / head.temperature)[:, None]
        return total + by_matrix(slopes, weighted, matrix, head), None

    chunks = _num_chunks(targets, matrix, head)
    cuts = tuple(cut(array, chunks) for array in (hidden, targets, log_total, cotangent))
    of_matrix, _ = jax.lax.scan(add_chunk, jnp.zeros(matrix.shape, jnp.float32), (cuts, logits))
    return (cotangent[..., None] * by_hidden).astype(hidden.dtype), of_matrix.astype(matrix.dtype), None


_logprobs.defvjp(_forward, _backward)


def _slopes(logits: Array, log_total: Array, targets: Array, head: Head) -> Array:
    """Derivative of each target's log-probability by the logits before the cap, but for the division by temperature."""
    chosen = jnp.arange(logits.shape[-1]) == targets[:, None]
    slopes = chosen - jnp.exp(logits / head.temperature - log_total[:, None])
    return slopes if head.soft_cap is None else slopes * (1.0 - jnp.square(logits / head.soft_cap))


def _num_chunks(targets: Array, matrix: Array, head: Head) -> int:
    return num_chunks(targets.shape, matrix.shape[head.vocab_axis], CHUNK_ENTRIES)
