"""Root mean square normalisation (arXiv 1910.07467)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


class RmsNorm(nnx.Module):
    """x / sqrt(mean(x²) + epsilon) * (offset + scale) over the last axis, computed in float32."""

    def __init__(self, size: int, *, epsilon: float, offset: float) -> None:
        self.epsilon = epsilon
        self.offset = offset
        self.scale = nnx.Param(jnp.full((size,), 1.0 - offset))

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        exact = x.astype(jnp.float32)
        normed = exact * jax.lax.rsqrt(jnp.mean(exact * exact, axis=-1, keepdims=True) + self.epsilon)
        scale = self.scale[...].astype(jnp.float32)
        return (normed * (scale + self.offset if self.offset else scale)).astype(x.dtype)
