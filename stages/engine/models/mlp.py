"""The gated feed-forward layer (arXiv 2002.05202)."""

from collections.abc import Callable, Mapping
from functools import partial

import jax
from flax import nnx
from jaxtyping import Array, Float

from stages.engine.cluster.axes import constrain
from stages.engine.models.architecture import Architecture
from stages.engine.models.tokens import along_one_axis

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}


class Mlp(nnx.Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, arch: Architecture, *, rngs: nnx.Rngs) -> None:
        self.activation = arch.activation
        self.gate_proj = nnx.Linear(arch.width, arch.hidden, use_bias=False, rngs=rngs)
        self.up_proj = nnx.Linear(arch.width, arch.hidden, use_bias=False, rngs=rngs)
        self.down_proj = nnx.Linear(arch.hidden, arch.width, use_bias=False, rngs=rngs)

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        x = along_one_axis(x_BTD)
        inner = ACTIVATIONS[self.activation](self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(constrain(inner, "rows", "tokens", "mlp")).reshape(x_BTD.shape)
