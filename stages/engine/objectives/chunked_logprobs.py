"""Log-probabilities of targets from hidden states, without the logits of all tokens at once.

Logits exist for a chunk of tokens at a time. The forward pass that is differentiated keeps, for each token, the
derivative of its log-probability by its hidden state, which is all that a frozen output matrix asks of the backward
pass. The gradient of the matrix computes logits again, chunk by chunk, and is compiled only where something reads it.
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
    return _join(found, targets.shape[1])


def _forward(hidden: Array, matrix: Array, targets: Array, head: _Head) -> tuple[Array, tuple[Array, ...]]:
    def of_chunk(chunk: tuple[Array, Array]) -> tuple[Array, Array]:
        logits = _logits(chunk[0], matrix, head)
        slopes = _slopes(logits, chunk[1], head).astype(matrix.dtype)
        by_hidden = _contract("brv,vd->brd", slopes, matrix, head)
        return target_logprobs(logits, chunk[1], head.temperature), by_hidden.astype(hidden.dtype)

    num_chunks = _num_chunks(targets, matrix, head)
    found, by_hidden = jax.lax.map(of_chunk, (_cut(hidden, num_chunks), _cut(targets, num_chunks)))
    length = targets.shape[1]
    return _join(found, length), (hidden, matrix, targets, _join(by_hidden, length))


def _backward(head: _Head, kept: tuple[Array, ...], cotangent: Array) -> tuple[Array, Array, None]:
    hidden, matrix, targets, by_hidden = kept

    def add_chunk(total: Array, chunk: tuple[Array, Array, Array]) -> tuple[Array, None]:
        hidden_BRD, targets_BR, cotangent_BR = chunk
        slopes = _slopes(_logits(hidden_BRD, matrix, head), targets_BR, head) * cotangent_BR[..., None]
        spec = "brv,brd->vd" if head.vocab_axis == 0 else "brv,brd->dv"
        added = jnp.einsum(spec, slopes.astype(matrix.dtype), hidden_BRD, preferred_element_type=jnp.float32)
        return total + added, None

    num_chunks = _num_chunks(targets, matrix, head)
    chunks = _cut(hidden, num_chunks), _cut(targets, num_chunks), _cut(cotangent, num_chunks)
    by_matrix, _ = jax.lax.scan(add_chunk, jnp.zeros(matrix.shape, jnp.float32), chunks)
    return (cotangent[..., None] * by_hidden).astype(hidden.dtype), by_matrix.astype(matrix.dtype), None


_logprobs.defvjp(_forward, _backward)


def _logits(hidden: Array, matrix: Array, head: _Head) -> Array:
    logits = _contract("brd,vd->brv", hidden, matrix, head)
    return logits if head.soft_cap is None else head.soft_cap * jnp.tanh(logits / head.soft_cap)


def _contract(spec: str, left: Array, matrix: Array, head: _Head) -> Array:
    """The product with the matrix as it lies: a transposed copy would be as large as the matrix."""
    if head.vocab_axis == 1:
        spec = spec.replace("vd", "dv")
    return jnp.einsum(spec, left, matrix, preferred_element_type=jnp.float32)


def _slopes(logits: Array, targets: Array, head: _Head) -> Array:
    """Derivative of each target's log-probability by the logits as they were before the cap."""
    chosen = jnp.arange(logits.shape[-1]) == targets[..., None]
    slopes = (chosen - jax.nn.softmax(logits / head.temperature)) / head.temperature
    return slopes if head.soft_cap is None else slopes * (1.0 - jnp.square(logits / head.soft_cap))


def _num_chunks(targets: Array, matrix: Array, head: _Head) -> int:
    rows, length = targets.shape
    chunk = max(1, CHUNK_ENTRIES // (rows * matrix.shape[head.vocab_axis]))
    return -(-length // chunk)


def _cut(array: Array, num_chunks: int) -> Array:
    """From [B, R, ...] to [chunks, B, R / chunks, ...], filled up with zeros."""
    size = -(-array.shape[1] // num_chunks)
    padding = [(0, 0), (0, num_chunks * size - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
    padded = jnp.pad(array, padding)
    return jnp.moveaxis(padded.reshape(array.shape[0], num_chunks, size, *array.shape[2:]), 1, 0)


def _join(chunks: Array, length: int) -> Array:
    """What `_cut` cut, without the filling."""
    whole = jnp.moveaxis(chunks, 0, 1)
    return whole.reshape(whole.shape[0], -1, *whole.shape[3:])[:, :length]
