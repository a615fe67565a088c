"""Rotary position embedding (arXiv 2104.09864) in the half-split layout of Hugging Face checkpoints."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Rope(NamedTuple):
    """Cosine and sine of each position's angles."""

    cos: Float[Array, "B T half"]
    sin: Float[Array, "B T half"]


def make_rope(positions: Int[Array, "B T"], head_size: int, theta: float) -> Rope:
    """Angles position * theta^(-2i / head_size) for i below head_size / 2."""
    frequencies = theta ** (-jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size)
    angles = positions[..., None].astype(jnp.float32) * frequencies
    return Rope(jnp.cos(angles), jnp.sin(angles))


def rotate(x_BTNH: Float[Array, "B T N H"], rope: Rope) -> Float[Array, "B T N H"]:
    """Rotates the pairs (x[i], x[i + H / 2]) by their position's angle."""
    first, second = jnp.split(x_BTNH, 2, axis=-1)
    cos, sin = rope.cos[:, :, None], rope.sin[:, :, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
