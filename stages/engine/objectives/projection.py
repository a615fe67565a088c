"""Logits from hidden states, for a part of a batch's tokens at a time."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped


class Head(NamedTuple):
    """What stands between hidden states and a distribution, besides the matrix.

    Attributes:
        vocab_axis: of the matrix, which is (V, D) as an embedding or (D, V) as a kernel.
        temperature: divides the logits, above 0.
        soft_cap: logits x become soft_cap · tanh(x / soft_cap) before that (Gemma 2, arXiv 2408.00118), if given.
    """

    vocab_axis: int = 0
    temperature: float = 1.0
    soft_cap: float | None = None


class Outputs(NamedTuple):
    """What a model's distributions over the next token are made of, after each of some tokens.

    Attributes:
        hidden: states of the tokens.
        matrix: that they are multiplied with.
        head: what is done then.
    """

    hidden: Float[Array, "B R D"]
    matrix: Float[Array, "_ _"]
    head: Head


def project(hidden: Float[Array, "N D"], matrix: Float[Array, "_ _"], head: Head) -> Float[Array, "N V"]:
    """Logits in float32 after the cap, before the division by the temperature."""
    return capped(contract("nd,vd->nv", hidden, matrix, head), head)


def capped(product: Float[Array, "N V"], head: Head) -> Float[Array, "N V"]:
    """Logits from the product of hidden states and matrix."""
    return product if head.soft_cap is None else head.soft_cap * jnp.tanh(product / head.soft_cap)


def contract(spec: str, left: Float[Array, "N _"], matrix: Float[Array, "_ _"], head: Head) -> Float[Array, "N _"]:
    """The product with the matrix as it lies: a transposed copy would be as large as the matrix."""
    if head.vocab_axis == 1:
        spec = spec.replace("vd", "dv")
    return jnp.einsum(spec, left, matrix, preferred_element_type=jnp.float32)


def by_matrix(
    slopes: Float[Array, "N V"], hidden: Float[Array, "N D"], matrix: Float[Array, "_ _"], head: Head
) -> Float[Array, "_ _"]:
    """Gradient by the matrix in float32, from slopes by the product of each token; both are rounded to its type."""
    spec = "nv,nd->vd" if head.vocab_axis == 0 else "nv,nd->dv"
    operands = slopes.astype(matrix.dtype), hidden.astype(matrix.dtype)
    return jnp.einsum(spec, *operands, preferred_element_type=jnp.float32)


def num_chunks(shape: tuple[int, ...], entries: int, at_once: int) -> int:
    """Into how many chunks [B, R] tokens are cut so that a chunk has no more entries, and a token of each row.

    Args:
        shape: B and R.
        entries: of one token.
        at_once: most entries of a chunk.
    """
    rows, length = shape
    chunk = max(1, at_once // (rows * entries))
    return -(-length // chunk)


def cut(array: Shaped[Array, "B R *rest"], num_chunks: int) -> Shaped[Array, "chunks N *rest"]:
    """From [B, R, ...] to [chunks, B * R / chunks, ...], filled up with zeros.

    Chunks lie along R and hold all rows, so that rows may be divided over devices. Tokens of a chunk stand along one
    axis: with two, XLA copies what it multiplies into another order first.
    """
    rows, length, *rest = array.shape
    size = -(-length // num_chunks)
    padded = jnp.pad(array, [(0, 0), (0, num_chunks * size - length), *[(0, 0)] * len(rest)])
    return jnp.moveaxis(padded.reshape(rows, num_chunks, size, *rest), 1, 0).reshape(num_chunks, -1, *rest)


def join(chunks: Shaped[Array, "chunks N *rest"], shape: tuple[int, ...]) -> Shaped[Array, "B R *rest"]:
    """What `cut` cut, as [B, R, ...] without the filling.

    Args:
        chunks: of tokens.
        shape: B and R.
    """
    rows, length = shape
    num_chunks, _, *rest = chunks.shape
    return jnp.moveaxis(chunks.reshape(num_chunks, rows, -1, *rest), 0, 1).reshape(rows, -1, *rest)[:, :length]
