"""An adapter folded into its base: W + scale A B (arXiv 2106.09685, section 4.1)."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from stages.contract import Quantization
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights
from stages.engine.models.paths import dotted
from stages.engine.models.quantise import QVALUE, SCALE, dequantise


def merged_weights(
    frozen: Frozen, adapter: Weights, lora: LoraConfig | None, quantization: Quantization | None = None
) -> Iterator[tuple[str, Float[Array, "..."]]]:
    """Every weight of the model that base and adapter are together, by path, layers stacked, one after the other.

    A kernel and its adapter are added up in float32 and rounded once, to the base's type. Of a quantised base the
    adapter goes onto the kernels that it stands for, which are what it was trained over.
    """
    stored = {dotted(path): leaf.get_value() for path, leaf in frozen.base.flat_state()}
    for name in stored:
        if name.endswith(f".{SCALE}"):
            continue
        path = name.removesuffix(f".{QVALUE}")
        if path == name:
            kernel = stored[path]
        else:
            assert quantization is not None
            kernel = dequantise({part: stored[f"{path}.{part}"] for part in (QVALUE, SCALE)}, quantization)
        if f"{path}_lora_a" in adapter:
            assert lora is not None
            kernel = _merge(kernel, adapter[f"{path}_lora_a"], adapter[f"{path}_lora_b"], lora.scale)
        yield path, kernel


@jax.jit
def _merge(
    kernel: Float[Array, "*L D F"], a: Float[Array, "*L D r"], b: Float[Array, "*L r F"], scale: ScalarLike
) -> Float[Array, "*L D F"]:
    product = jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)
    return (kernel.astype(jnp.float32) + scale * product).astype(kernel.dtype)
