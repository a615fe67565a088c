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

CHUNK_ENTRIES = 2**25
"""Logits that exist at once, all rows of a batch together: 128 MiB in float32."""


class _Head(NamedTuple):
    """What stands between hidden states and the distribution, besides the matrix.

    Attributes:
        vocab_axis: of the matrix.
        temperature: divides the logits.
        soft_cap: limits them before, where it is given.
    """

    vocab_axis: int
    temperature: float
    soft_cap: float | None


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
    return _logprobs(hidden, matrix, targets, _Head(vocab_axis, temperature, soft_cap))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _logprobs(hidden: Array, matrix: Array, targets: Array, head: _Head) -> Array:
    def of_chunk(chunk: tuple[Array, Array]) -> Array:
        return target_logprobs(_logits(chunk[0], matrix, head), chunk[1], head.temperature)

    num_chunks = _num_chunks(targets, matrix, head)
    found = jax.lax.map(of_chunk, (_cut(hidden, num_chunks), _cut(targets, num_chunks)))
    return _join(found, targets)


def _forward(hidden: Array, matrix: Array, targets: Array, head: _Head) -> tuple[Array, _Kept]:
    num_chunks = _num_chunks(targets, matrix, head)

    def of_chunk(chunk: tuple[Array, Array]) -> tuple[Array, Array, Array, Array | None]:
        hidden_ND, targets_N = chunk
        logits = _logits(hidden_ND, matrix, head)
        log_total = jax.nn.logsumexp(logits / head.temperature, axis=-1)
        slopes = _slopes(logits, log_total, targets_N, head).astype(matrix.dtype)
        by_hidden = _contract("nv,vd->nd", slopes, matrix, head) / head.temperature
        found = jnp.take_along_axis(logits, targets_N[:, None], axis=-1)[:, 0] / head.temperature - log_total
        return found, log_total, by_hidden.astype(hidden.dtype), logits if num_chunks == 1 else None

    *parts, logits = jax.lax.map(of_chunk, (_cut(hidden, num_chunks), _cut(targets, num_chunks)))
    found, log_total, by_hidden = (_join(part, targets) for part in parts)
    return found, _Kept(hidden, matrix, targets, log_total, by_hidden, logits)


def _backward(head: _Head, kept: _Kept, cotangent: Array) -> tuple[Array, Array, None]:
    hidden, matrix, targets, log_total, by_hidden, logits = kept

    def add_chunk(total: Array, chunk: tuple[tuple[Array, ...], Array | None]) -> tuple[Array, None]:
        (hidden_ND, targets_N, log_total_N, cotangent_N), logits_NV = chunk
        logits_NV = _logits(hidden_ND, matrix, head) if logits_NV is None else logits_NV
        slopes = _slopes(logits_NV, log_total_N, targets_N, head)
        weighted = hidden_ND * (cotangent_N / head.temperature)[:, None]
        operands = slopes.astype(matrix.dtype), weighted.astype(matrix.dtype)
        spec = "nv,nd->vd" if head.vocab_axis == 0 else "nv,nd->dv"
        return total + jnp.einsum(spec, *operands, preferred_element_type=jnp.float32), None

    num_chunks = _num_chunks(targets, matrix, head)
    chunks = tuple(_cut(array, num_chunks) for array in (hidden, targets, log_total, cotangent))
    by_matrix, _ = jax.lax.scan(add_chunk, jnp.zeros(matrix.shape, jnp.float32), (chunks, logits))
    return (cotangent[..., None] * by_hidden).astype(hidden.dtype), by_matrix.astype(matrix.dtype), None


_logprobs.defvjp(_forward, _backward)


def _logits(hidden_ND: Array, matrix: Array, head: _Head) -> Array:
    logits = _contract("nd,vd->nv", hidden_ND, matrix, head)
    return logits if head.soft_cap is None else head.soft_cap * jnp.tanh(logits / head.soft_cap)


def _contract(spec: str, left: Array, matrix: Array, head: _Head) -> Array:
    """The product with the matrix as it lies: a transposed copy would be as large as the matrix."""
    if head.vocab_axis == 1:
        spec = spec.replace("vd", "dv")
    return jnp.einsum(spec, left, matrix, preferred_element_type=jnp.float32)


def _slopes(logits: Array, log_total: Array, targets: Array, head: _Head) -> Array:
    """Derivative of each target's log-probability by the logits before the cap, but for the division by temperature."""
    chosen = jnp.arange(logits.shape[-1]) == targets[:, None]
    slopes = chosen - jnp.exp(logits / head.temperature - log_total[:, None])
    return slopes if head.soft_cap is None else slopes * (1.0 - jnp.square(logits / head.soft_cap))


def _num_chunks(targets: Array, matrix: Array, head: _Head) -> int:
    rows, length = targets.shape
    chunk = max(1, CHUNK_ENTRIES // (rows * matrix.shape[head.vocab_axis]))
    return -(-length // chunk)


def _cut(array: Array, num_chunks: int) -> Array:
    """From [B, R, ...] to [chunks, B * R / chunks, ...], filled up with zeros.

    Tokens of a chunk stand along one axis: with two, XLA copies what it multiplies into another order first.
    """
    rows, length, *rest = array.shape
    size = -(-length // num_chunks)
    padded = jnp.pad(array, [(0, 0), (0, num_chunks * size - length), *[(0, 0)] * len(rest)])
    return jnp.moveaxis(padded.reshape(rows, num_chunks, size, *rest), 1, 0).reshape(num_chunks, -1, *rest)


def _join(chunks: Array, targets: Array) -> Array:
    """What `_cut` cut, as [B, R, ...] without the filling."""
    rows, length = targets.shape
    num_chunks, _, *rest = chunks.shape
    return jnp.moveaxis(chunks.reshape(num_chunks, rows, -1, *rest), 0, 1).reshape(rows, -1, *rest)[:, :length]
