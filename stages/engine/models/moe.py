"""A mixture of experts (arXiv 1701.06538) in place of the gated feed-forward layer."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Shaped, UInt32

from stages.engine.cluster.axes import on_each_device, on_several_devices, places
from stages.engine.models.architecture import Architecture, Experts
from stages.engine.models.dropout import DROPOUT, IMPL, DropoutKeys, dropout_mask, expert_keys, masked_noise
from stages.engine.models.experts import ExpertMatrices, grouped_product, random_experts
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


class Kernels(NamedTuple):
    """The matrices of E experts."""

    gate: ExpertMatrices
    up: ExpertMatrices
    down: ExpertMatrices


class Dropped(NamedTuple):
    """What the adapters of experts drop of their inputs.

    Attributes:
        keys: for each token and each of its experts.
        rate: share of the inputs.
        hidden: hidden units of an expert, of which a device may have a part.
    """

    keys: Key[Array, "N k"]
    rate: float
    hidden: int


TOKENS, EACH = places("rows", "tokens", None), places("experts", None, None)
INTO, BACK = places("experts", None, "mlp"), places("experts", "mlp", None)
KERNELS = Kernels._make(map(ExpertMatrices._make, ((INTO, EACH, INTO), (INTO, EACH, INTO), (BACK, BACK, EACH))))
"""How the matrices are divided over devices."""


def mix(
    x_ND: Float[Array, "N D"],
    routing: Routing,
    kernels: Kernels,
    activation: str,
    scale: float = 0.0,
    dropped: Dropped | None = None,
) -> Float[Array, "N D"]:
    """Sum over a token's experts of weight * down(activation(gate(x)) * up(x)); one numbered E adds nothing.

    Args:
        x_ND: tokens.
        routing: which experts they go to.
        kernels: of the experts, with adapters or without.
        activation: its name.
        scale: what the product of an adapter is multiplied by.
        dropped: what adapters drop of their inputs.
    """
    chosen, count = routing.experts.reshape(-1), kernels.gate.kernel.shape[0]
    order = jnp.argsort(chosen, stable=True)
    sizes = jnp.bincount(chosen, length=count)
    # What stands in rows beyond all groups, and in their derivatives, is up to the device's kernel.
    grouped = (chosen[order] < count)[:, None]

    def each(name: str, x_MD: Float[Array, "M D"], layer: ExpertMatrices) -> Float[Array, "M F"]:
        out = grouped_product(x_MD, layer.kernel, sizes)
        if layer.a is None or layer.b is None:
            return out
        if dropped is not None:
            x_MD = x_MD + _noise(name, x_MD, order, dropped)
        return out + grouped_product(grouped_product(x_MD, layer.a, sizes), layer.b, sizes) * scale

    x_MD = jnp.where(grouped, x_ND[order // routing.experts.shape[-1]], 0)
    inner = ACTIVATIONS[activation](each("gate_proj", x_MD, kernels.gate)) * each("up_proj", x_MD, kernels.up)
    out = each("down_proj", inner, kernels.down)
    # Back in the order of tokens, so that a token's experts are added in one order whatever else is in the batch.
    by_token = jnp.zeros_like(out).at[order].set(jnp.where(grouped, out, 0), unique_indices=True)
    weighted = by_token.reshape(*routing.weights.shape, -1) * routing.weights[..., None].astype(out.dtype)
    return jnp.sum(weighted, axis=1)


def _noise(name: str, x_MD: Float[Array, "M D"], order: Int[Array, " M"], dropped: Dropped) -> Float[Array, "M D"]:
    """What dropout adds to an adapter's inputs, of which a device may have a part."""
    width = x_MD.shape[-1]
    whole = dropped.hidden if name == "down_proj" else width
    kept = dropout_mask(dropped.keys.reshape(-1)[order], whole, dropped.rate, f"mlp/{name}")
    if whole != width:
        kept = jax.lax.dynamic_slice_in_dim(kept, jax.lax.axis_index("tensor") * width, width, axis=-1)
    return masked_noise(x_MD, kept, dropped.rate)


def mix_own(
    x_ND: Float[Array, "N D"],
    routing: Routing,
    kernels: Kernels,
    activation: str,
    scale: float = 0.0,
    dropped: Dropped | None = None,
) -> Float[Array, "N D"]:
    """`mix` on one of several devices, each of which has some tokens, some experts and a part of their hidden units.

    The devices along `expert` gather each other's tokens, compute what goes to their own experts, and give every one
    the sum for its tokens.
    """
    x_ND, experts, weights = (gather(each) for each in (x_ND, *routing))
    if dropped is not None:
        dropped = dropped._replace(keys=jax.random.wrap_key_data(gather(jax.random.key_data(dropped.keys)), impl=IMPL))
    count = kernels.gate.kernel.shape[0]
    number = experts - jax.lax.axis_index("expert") * count
    here = Routing(jnp.where((number >= 0) & (number < count), number, count), weights)
    part = jax.lax.psum(mix(x_ND, here, kernels, activation, scale, dropped), "tensor")
    return jax.lax.psum_scatter(part, "expert", tiled=True)


def gather(local: Shaped[Array, "N *rest"]) -> Shaped[Array, "M *rest"]:
    """Everybody's tokens along `expert`."""
    return jax.lax.all_gather(local, "expert", tiled=True)


class MixtureOfExperts(nnx.Module):
    """Every token is computed by all its experts: none is dropped for want of capacity.

    Attributes:
        adapter_scale: what the products of the experts' adapters are multiplied by, where they have any.
    """

    def __init__(self, arch: Architecture, experts: Experts, *, rngs: nnx.Rngs) -> None:
        self.activation = arch.activation
        self.experts = experts
        self.router = nnx.Linear(arch.width, experts.count, use_bias=False, rngs=rngs)
        self.gate_proj = random_experts(experts.count, arch.width, experts.hidden, rngs=rngs)
        self.up_proj = random_experts(experts.count, arch.width, experts.hidden, rngs=rngs)
        self.down_proj = random_experts(experts.count, experts.hidden, arch.width, rngs=rngs)
        self.adapter_scale = 0.0

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        dropout: DropoutKeys | None = vars(self).get(DROPOUT)
        rate, keys = (0.0, None) if dropout is None else (dropout.rate, jax.random.key_data(dropout[...]))
        kernels = Kernels(self.gate_proj.matrices(), self.up_proj.matrices(), self.down_proj.matrices())
        run = on_each_device(partial(self._mix, rate), (TOKENS, TOKENS, TOKENS, KERNELS), TOKENS)
        return run(x_BTD, self.router(x_BTD), keys, kernels)

    def _mix(
        self,
        rate: float,
        x_BTD: Float[Array, "B T D"],
        logits_BTE: Float[Array, "B T E"],
        keys: UInt32[Array, "B T 2"] | None,
        kernels: Kernels,
    ) -> Float[Array, "B T D"]:
        x_ND, logits_NE = (each.reshape(-1, each.shape[-1]) for each in (x_BTD, logits_BTE))
        routing, dropped = route(logits_NE, self.experts), None
        if keys is not None:
            dropped = Dropped(expert_keys(keys.reshape(-1, 2), routing.experts), rate, self.experts.hidden)
        run = mix_own if on_several_devices() else mix
        return run(x_ND, routing, kernels, self.activation, self.adapter_scale, dropped).reshape(x_BTD.shape)
