"""The matrices of a mixture's experts: in full or in few bits, and perhaps an adapter over each of them."""

from types import EllipsisType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import qwix
from flax import nnx
from jaxtyping import Array, Float, Int

from stages.contract import Quantization
from stages.engine.models.quantise import STORED


class ExpertMatrices(NamedTuple):
    """One matrix [D, F] for each of E experts.

    Attributes:
        kernel: the matrices, or what stands for them in few bits.
        a: of their adapters, if they have any.
        b: likewise.
    """

    kernel: Float[Array, "E D F"] | qwix.QArray
    a: Float[Array, "E D r"] | None = None
    b: Float[Array, "E r F"] | None = None


class FewBits(nnx.Module):
    """A kernel as `quantise` stores it, its parts under the names that they have there."""

    def __init__(self, shape: tuple[int, int, int], how: Quantization) -> None:
        count, inputs, outputs = shape
        self.kind = how.kind
        self.array = nnx.Dict(
            qvalue=nnx.Param(jnp.zeros(shape, STORED[how.kind])),
            scale=nnx.Param(jnp.ones((count, inputs // how.tile_size, outputs))),
        )

    def __getitem__(self, everything: EllipsisType) -> qwix.QArray:
        return qwix.QArray(self.array.qvalue[...], self.array.scale[...], None, self.kind)


class ExpertWeights(nnx.Module):
    """One matrix for each expert."""

    def __init__(self, kernel: nnx.Param | FewBits) -> None:
        self.kernel = kernel

    def matrices(self) -> ExpertMatrices:
        """The arrays as they are."""
        return ExpertMatrices(self.kernel[...])


class LowRankExperts(ExpertWeights):
    """One matrix for each expert, each under an adapter of its own that is zero to begin with."""

    def __init__(self, kernel: nnx.Param | FewBits, rank: int) -> None:
        super().__init__(kernel)
        count, inputs, outputs = kernel[...].shape
        self.kernel_lora_a = nnx.LoRAParam(jnp.zeros((count, inputs, rank)))
        self.kernel_lora_b = nnx.LoRAParam(jnp.zeros((count, rank, outputs)))

    def matrices(self) -> ExpertMatrices:
        return ExpertMatrices(self.kernel[...], self.kernel_lora_a[...], self.kernel_lora_b[...])


def random_experts(count: int, inputs: int, outputs: int, *, rngs: nnx.Rngs) -> ExpertWeights:
    """Normal matrices that keep the size of their inputs."""
    return ExpertWeights(nnx.Param(jax.random.normal(rngs.params(), (count, inputs, outputs)) * inputs**-0.5))


def grouped_product(
    x_MD: Float[Array, "M D"], kernel: Float[Array, "E D F"] | qwix.QArray, sizes: Int[Array, " E"]
) -> Float[Array, "M F"]:
    """Rows times the matrix of their expert, where `sizes` rows after each other belong to each; further rows are junk.

    A kernel in few bits is restored again in the backward pass, and not kept from the forward pass in full.
    """
    if isinstance(kernel, qwix.QArray):
        return jax.checkpoint(_product_restored)(x_MD, kernel, sizes)
    return jax.lax.ragged_dot(x_MD, kernel.astype(x_MD.dtype), sizes)


def _product_restored(x_MD: Float[Array, "M D"], kernel: qwix.QArray, sizes: Int[Array, " E"]) -> Float[Array, "M F"]:
    return jax.lax.ragged_dot(x_MD, qwix.dequantize(kernel).astype(x_MD.dtype), sizes)
