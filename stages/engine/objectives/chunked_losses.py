"""Losses of tokens that need all of their logits, without the logits of all tokens at once.

As in `chunked_logprobs`, the forward pass that is differentiated keeps what a frozen output matrix asks of the backward
pass; the gradient of the matrix computes logits again, and is compiled only where something reads it.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from stages.engine.objectives.projection import (
    Head,
    Outputs,
    by_matrix,
    capped,
    contract,
    cut,
    join,
    num_chunks,
    project,
)

CHUNK_ENTRIES = 2**24
"""Logits of the trained model that exist at once, all rows of a batch together: 64 MiB in float32."""

Tokens = TypeVar("Tokens", bound=PyTree)
Shared = TypeVar("Shared", bound=PyTree)
PartsT = TypeVar("PartsT", bound=PyTree)

LossOfLogits = Callable[[Float[Array, "N V"], Tokens, Shared], Float[Array, " N"]]
"""From logits divided by the temperature, what belongs to each of the tokens, and what all have in common."""


class _Kept(NamedTuple):
    """What the backward pass reads: of it, only `by_hidden` under a frozen matrix."""

    hidden: Array
    matrix: Array
    tokens: PyTree
    shared: PyTree
    by_hidden: Array


def chunked_losses(
    loss: LossOfLogits[Tokens, Shared], outputs: Outputs, tokens: Tokens, shared: Shared
) -> Float[Array, "B R"]:
    """A loss of each token in float32, with gradients by the hidden states and the matrix of `outputs`, and no others.

    The second derivative does not exist.

    Args:
        loss: of some tokens.
        outputs: of the trained model.
        tokens: arrays that begin with the axes B and R.
        shared: arrays that every chunk reads whole.
    """
    return _losses(loss, outputs.head, outputs.hidden, outputs.matrix, tokens, shared)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _losses(
    loss: LossOfLogits[PyTree, PyTree], head: Head, hidden: Array, matrix: Array, tokens: PyTree, shared: PyTree
) -> Array:
    def of_chunk(chunk: tuple[Array, PyTree]) -> Array:
        hidden_ND, of_tokens = chunk
        return loss(project(hidden_ND, matrix, head) / head.temperature, of_tokens, shared)

    return join(jax.lax.map(of_chunk, cut_tokens((hidden, tokens), matrix, head)), hidden.shape[:2])


def _forward(
    loss: LossOfLogits[PyTree, PyTree], head: Head, hidden: Array, matrix: Array, tokens: PyTree, shared: PyTree
) -> tuple[Array, _Kept]:
    def of_chunk(chunk: tuple[Array, PyTree]) -> tuple[Array, Array]:
        hidden_ND, of_tokens = chunk
        losses, slopes = _slopes(loss, head, contract("nd,vd->nv", hidden_ND, matrix, head), of_tokens, shared)
        by_hidden = contract("nv,vd->nd", slopes.astype(matrix.dtype), matrix, head)
        return losses, by_hidden.astype(hidden.dtype)

    parts = jax.lax.map(of_chunk, cut_tokens((hidden, tokens), matrix, head))
    losses, by_hidden = (join(part, hidden.shape[:2]) for part in parts)
    return losses, _Kept(hidden, matrix, tokens, shared, by_hidden)


def _backward(
    loss: LossOfLogits[PyTree, PyTree], head: Head, kept: _Kept, cotangent: Array
) -> tuple[Array, Array, None, None]:
    hidden, matrix, tokens, shared, by_hidden = kept

    def add_chunk(total: Array, chunk: tuple[Array, PyTree, Array]) -> tuple[Array, None]:
        hidden_ND, of_tokens, cotangent_N = chunk
        _, slopes = _slopes(loss, head, contract("nd,vd->nv", hidden_ND, matrix, head), of_tokens, shared)
        return total + by_matrix(slopes, hidden_ND * cotangent_N[:, None], matrix, head), None

    chunks = cut_tokens((hidden, tokens, cotangent), matrix, head)
    of_matrix, _ = jax.lax.scan(add_chunk, jnp.zeros(matrix.shape, jnp.float32), chunks)
    return (cotangent[..., None] * by_hidden).astype(hidden.dtype), of_matrix.astype(matrix.dtype), None, None


_losses.defvjp(_forward, _backward)


def _slopes(
    loss: LossOfLogits[PyTree, PyTree], head: Head, product: Array, tokens: PyTree, shared: PyTree
) -> tuple[Array, Array]:
    """Losses, and the derivative of each by the product of its hidden state and the matrix."""

    def of_product(product: Array) -> Array:
        return loss(capped(product, head) / head.temperature, tokens, shared)

    losses, back = jax.vjp(of_product, product)
    return losses, back(jnp.ones_like(losses))[0]


def cut_tokens(parts: PartsT, matrix: Float[Array, "_ _"], head: Head) -> PartsT:
    """Arrays that begin with the axes B and R, in chunks of so many tokens that their logits are within bounds."""
    shape = jax.tree.leaves(parts)[0].shape[:2]
    chunks = num_chunks(shape, matrix.shape[head.vocab_axis], CHUNK_ENTRIES)
    return jax.tree.map(lambda array: cut(array, chunks), parts)
