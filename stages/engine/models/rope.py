"""Rotary position embedding (arXiv 2104.09864) in the half-split layout of Hugging Face checkpoints."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from stages.engine.models.architecture import LinearScaling, Llama3Scaling, RopeSettings


class Rope(NamedTuple):
    """Cosine and sine of each position's angles."""

    cos: Float[Array, "B T half"]
    sin: Float[Array, "B T half"]


def frequencies(head_size: int, settings: RopeSettings) -> Float32[np.ndarray, " half"]:
    """Angle by which each pair turns from one position to the next, in radians."""
    plain = settings.theta ** (-np.arange(0, head_size, 2, dtype=np.float64) / head_size)
    return (plain / _divisors(plain, settings.scaling)).astype(np.float32)


def _divisors(plain: np.ndarray, scaling: LinearScaling | Llama3Scaling | None) -> np.ndarray | float:
    if scaling is None:
        return 1.0
    if isinstance(scaling, LinearScaling):
        return scaling.factor
    turns = scaling.original_positions * plain / (2 * math.pi)
    fast = np.clip((turns - scaling.low_turns) / (scaling.high_turns - scaling.low_turns), 0.0, 1.0)
    return 1.0 / (fast + (1.0 - fast) / scaling.factor)


def make_rope(positions: Int[Array, "B T"], head_size: int, settings: RopeSettings) -> Rope:
    """Angles position * frequency for each pair of a head."""
    angles = positions[..., None].astype(jnp.float32) * frequencies(head_size, settings)
    return Rope(jnp.cos(angles), jnp.sin(angles))


def rotate(x_BTNH: Float[Array, "B T N H"], rope: Rope) -> Float[Array, "B T N H"]:
    """Rotates the pairs (x[i], x[i + H / 2]) by their position's angle, computed in float32."""
    first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
    cos, sin = rope.cos[:, :, None], rope.sin[:, :, None]
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_BTNH.dtype)
