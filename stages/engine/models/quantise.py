"""Kernels of a frozen base in 8 or 4 bits, with a scale for each tile of inputs (QLoRA, arXiv 2305.14314)."""

from collections.abc import Callable, Mapping
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import qwix
from jaxtyping import Array, Float, Shaped

from stages.contract import Quantization
from stages.engine.models.architecture import Architecture
from stages.errors import UserError

BOUNDS = {"nf4": 1.0, "int8": 127.5, "int4": 7.5}
"""Largest magnitude that a tile is scaled to: half a step beyond the last integer, which then serves all its range."""

STORED = {"nf4": jnp.uint4, "int8": jnp.int8, "int4": jnp.int4}

Parts = dict[str, Shaped[np.ndarray, "..."]]
"""Arrays that take a kernel's place, by what follows the kernel's name in theirs."""

QVALUE, SCALE = "array.qvalue", "array.scale"


def quantise(kernel: Float[np.ndarray, "*L D F"] | Float[Array, "*L D F"], how: Quantization) -> Parts:
    """Rounds to the nearest level: `QVALUE` of the kernel's shape, `SCALE` [*L, tiles, F] of its type, on the host.

    The largest magnitude of a tile is met exactly by nf4, and within half a step by integers.
    """
    values, scale = jax.device_get(_quantise(jnp.asarray(kernel), how.kind, how.tile_size))
    # The compiler's own conversion to 4 bits takes ten times as long on a CPU.
    return {QVALUE: values.astype(STORED[how.kind]), SCALE: scale}


def dequantise(parts: Mapping[str, Array], how: Quantization) -> Float[Array, "*L D F"]:
    """The kernel that a quantised one stands for."""
    return qwix.dequantize(qwix.QArray(parts[QVALUE], parts[SCALE], None, how.kind))


def converters(arch: Architecture, how: Quantization) -> Mapping[str, Callable[[Float[Array, "*L D F"]], Parts]]:
    """For a loader: by the path of each kernel that is quantised, what does it, one matrix at a time or several.

    Those are the kernels of all linear layers of the blocks, those of experts too; a router is small, and stays as it
    is. Part `p` of kernel `k` is the weight `k.p` of the quantised decoder.

    Raises:
        UserError: tiles do not divide the inputs of some layers; all are named.
    """
    sizes = {
        "attention.q_proj": arch.width,
        "attention.k_proj": arch.width,
        "attention.v_proj": arch.width,
        "attention.o_proj": arch.num_heads * arch.head_size,
        "mlp.gate_proj": arch.width,
        "mlp.up_proj": arch.width,
        "mlp.down_proj": arch.hidden if arch.experts is None else arch.experts.hidden,
    }
    wrong = [f"{name} has {size}" for name, size in sizes.items() if size % how.tile_size]
    if wrong:
        raise UserError(
            f"model.quantization.tile_size: {how.tile_size} does not divide the inputs of some layers: "
            + ", ".join(wrong)
        )
    return {f"blocks.{name}.kernel": partial(quantise, how=how) for name in sizes}


@partial(jax.jit, static_argnames=("kind", "tile_size"))
def _quantise(kernel: Array, kind: str, tile_size: int) -> tuple[Array, Array]:
    *front, inputs, outputs = kernel.shape
    tiles = kernel.reshape(*front, inputs // tile_size, tile_size, outputs)
    scale = jnp.max(jnp.abs(tiles), axis=-2, keepdims=True) / BOUNDS[kind]
    scale = jnp.where(scale == 0, jnp.ones_like(scale), scale)
    scaled = tiles / scale
    if kind == "nf4":
        values = sum((scaled > border).astype(jnp.uint8) for border in _nf4_borders())
    else:
        limit = int(BOUNDS[kind])
        values = jnp.clip(jnp.round(scaled), -limit - 1, limit).astype(jnp.int8)
    return jnp.reshape(values, kernel.shape), jnp.squeeze(scale, -2)


@cache
def _nf4_borders() -> list[float]:
    """Where the nearest of the 16 levels changes; the levels are qwix's."""
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(16, dtype=jnp.uint4)[:, None]
        levels = np.asarray(qwix.dequantize(qwix.QArray(numbers, jnp.ones((1, 1)), None, "nf4")))[:, 0]
    return ((levels[1:] + levels[:-1]) / 2).tolist()
