"""Reductions that leave out what is masked."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def masked_sum(values: Float[Array, "*B T"], mask: Bool[Array, "*B T"]) -> Float[Array, "*B"]:
    """Sum over the last axis; masked values do not enter, not even if they are infinite or NaN."""
    return jnp.where(mask, values, 0.0).sum(-1)


def masked_mean(values: Float[Array, "*B T"], mask: Bool[Array, "*B T"]) -> Float[Array, "*B"]:
    """Mean over the last axis, 0 where all is masked."""
    return ratio(masked_sum(values, mask), mask.sum(-1).astype(values.dtype))


def ratio(total: Float[Array, "*B"], denominator: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """A sum over its denominator, 0 where the denominator is 0: how a loss or metric is read off its two parts."""
    return jnp.where(denominator > 0, total / jnp.where(denominator > 0, denominator, 1.0), 0.0)
