"""A mixture of experts (arXiv 1701.06538) in place of the gated feed-forward layer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from stages.engine.cluster.axes import on_each_device, on_several_devices, places
from stages.engine.models.architecture import Architecture, Experts
from stages.engine.models.mlp import ACTIVATIONS


class Routing(NamedTuple):
    """The experts that each of N tokens goes to, and their weights."""

    experts: Int[Array, "N k"]
    weights: Float[Array, "N k"]


def route(logits: Float[Array, "N E"], experts: Experts) -> Routing:
    """The best experts of each token by softmax over all of them, in float32."""
    weights, chosen = jax.lax.top_k(jax.nn.softmax(logits.astype(jnp.float32), axis=-1), experts.per_token)
    if experts.normalized:
        weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return Routing(chosen, weights)


class ExpertWeights(nnx.Module):
    """One matrix for each expert."""

    def __init__(self, count: int, inputs: int, outputs: int, *, rngs: nnx.Rngs) -> None:
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), (count, inputs, outputs)) * inputs**-0.5)


class Kernels(NamedTuple):
    """The matrices of E experts."""

    gate: Float[Array, "E D F"]
    up: Float[Array, "E D F"]
    down: Float[Array, "E F D"]


TOKENS, INTO, BACK = places("rows", "tokens", None), places("experts", None, "mlp"), places("experts", "mlp", None)


def mix(x_ND: Float[Array, "N D"], routing: Routing, kernels: Kernels, activation: str) -> Float[Array, "N D"]:
    """Sum over a token's experts of weight * down(activation(gate(x)) * up(x)); one numbered E adds nothing."""
    chosen, (count, *_) = routing.experts.reshape(-1), kernels.gate.shape
    order = jnp.argsort(chosen, stable=True)
    sizes = jnp.bincount(chosen, length=count)
    # What stands in rows beyond all groups, and in their derivatives, is up to the device's kernel.
    grouped = (chosen[order] < count)[:, None]

    def each(x_MD: Float[Array, "M D"], kernel: Float[Array, "E D F"]) -> Float[Array, "M F"]:
        return jax.lax.ragged_dot(x_MD, kernel.astype(x_MD.dtype), sizes)

    x_MD = jnp.where(grouped, x_ND[order // routing.experts.shape[-1]], 0)
    out = each(ACTIVATIONS[activation](each(x_MD, kernels.gate)) * each(x_MD, kernels.up), kernels.down)
    # Back in the order of tokens, so that a token's experts are added in one order whatever else is in the batch.
    by_token = jnp.zeros_like(out).at[order].set(jnp.where(grouped, out, 0), unique_indices=True)
    weighted = by_token.reshape(*routing.weights.shape, -1) * routing.weights[..., None].astype(out.dtype)
    return jnp.sum(weighted, axis=1)


def mix_own(x_ND: Float[Array, "N D"], routing: Routing, kernels: Kernels, activation: str) -> Float[Array, "N D"]:
    """`mix` on one of several devices, each of which has some tokens, some experts and a part of their hidden units.

    The devices along `expert` gather each other's tokens, compute what goes to their own experts, and give every one
    the sum for its tokens.
    """
    x_ND, experts, weights = (jax.lax.all_gather(each, "expert", tiled=True) for each in (x_ND, *routing))
    count = kernels.gate.shape[0]
    number = experts - jax.lax.axis_index("expert") * count
    here = Routing(jnp.where((number >= 0) & (number < count), number, count), weights)
    part = jax.lax.psum(mix(x_ND, here, kernels, activation), "tensor")
    return jax.lax.psum_scatter(part, "expert", tiled=True)


class MixtureOfExperts(nnx.Module):
    """Every token is computed by all its experts: none is dropped for want of capacity."""

    def __init__(self, arch: Architecture, experts: Experts, *, rngs: nnx.Rngs) -> None:
        self.activation = arch.activation
        self.experts = experts
        self.router = nnx.Linear(arch.width, experts.count, use_bias=False, rngs=rngs)
        self.gate_proj = ExpertWeights(experts.count, arch.width, experts.hidden, rngs=rngs)
        self.up_proj = ExpertWeights(experts.count, arch.width, experts.hidden, rngs=rngs)
        self.down_proj = ExpertWeights(experts.count, experts.hidden, arch.width, rngs=rngs)

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        kernels = (each.kernel[...] for each in (self.gate_proj, self.up_proj, self.down_proj))
        return on_each_device(self._mix, (TOKENS, TOKENS, INTO, INTO, BACK), TOKENS)(
            x_BTD, self.router(x_BTD), *kernels
        )

    def _mix(
        self,
        x_BTD: Float[Array, "B T D"],
        logits_BTE: Float[Array, "B T E"],
        gate: Float[Array, "local D F"],
        up: Float[Array, "local D F"],
        down: Float[Array, "local F D"],
    ) -> Float[Array, "B T D"]:
        x_ND, logits_NE = (each.reshape(-1, each.shape[-1]) for each in (x_BTD, logits_BTE))
        routing, kernels = route(logits_NE, self.experts), Kernels(gate, up, down)
        mixed = (mix_own if on_several_devices() else mix)(x_ND, routing, kernels, self.activation)
        return mixed.reshape(x_BTD.shape)
