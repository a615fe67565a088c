"""What fits into the type that weights are written in."""

import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float

from stages.errors import UserError


def check_range(name: str, weight: Float[Array, "..."], dtype: DTypeLike) -> None:
    """Checks that every value stays a number in that type.

    Raises:
        UserError: one is too large, or is none to begin with.
    """
    largest, limit = float(jnp.abs(weight).max()), float(jnp.finfo(dtype).max)
    if not largest < float("inf"):
        raise UserError(f"{name}: holds NaN or infinite values; the training that made it went wrong")
    if largest > limit:
        raise UserError(
            f"{name}: values reach {largest:.6g} and {jnp.dtype(dtype)} ends at {limit:.6g}; choose bfloat16"
        )
