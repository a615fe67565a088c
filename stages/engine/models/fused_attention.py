"""Attention over one sequence of keys by the implementation that suits the device."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_FLASH_TYPES = (jnp.bfloat16, jnp.float16)
_FLASH_HEAD, _FLASH_MULTIPLE = 128, 8
"""Largest head of the kernel in both directions, and what heads and lengths must be multiples of."""


def masked_attention(
    q_BTNH: Float[Array, "B T N H"],
    k_BSKH: Float[Array, "B S K H"],
    v_BSKH: Float[Array, "B S K H"],
    mask: Bool[Array, "#B #T S"],
    scale: float,
) -> Float[Array, "B T N H"]:
    """Softmax attention of grouped queries; a query must see at least one key.

    Args:
        q_BTNH: queries.
        k_BSKH: keys.
        v_BSKH: values.
        mask: which keys a query sees.
        scale: multiplies the dot products.
    """
    rows, length, keys = mask.shape[0], q_BTNH.shape[1], k_BSKH.shape[1]
    mask_BNTS = jnp.broadcast_to(mask, (rows, length, keys))[:, None]
    implementation = implementation_for(jax.default_backend(), q_BTNH, keys)
    return jax.nn.dot_product_attention(
        q_BTNH, k_BSKH, v_BSKH, mask=mask_BNTS, scale=scale, implementation=implementation
    )


def implementation_for(
    platform: str, q_BTNH: Float[Array, "B T N H"] | jax.ShapeDtypeStruct, keys: int
) -> Literal["xla", "cudnn"]:
    """On GPUs the flash attention of cuDNN, for the types and sizes that it takes; everywhere else that of XLA."""
    _, length, _, size = q_BTNH.shape
    fits = size <= _FLASH_HEAD and not any(each % _FLASH_MULTIPLE for each in (size, length, keys))
    return "cudnn" if platform == "gpu" and q_BTNH.dtype in _FLASH_TYPES and fits else "xla"
