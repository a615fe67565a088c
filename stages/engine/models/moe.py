"""A mixture of experts (arXiv 1701.06538) in place of the gated feed-forward layer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

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

    def __call__(self, x_MD: Float[Array, "M D"], sizes: Int[Array, " E"]) -> Float[Array, "M F"]:
        """Rows in the order of their experts, `sizes` of them for each."""
        return jax.lax.ragged_dot(x_MD, self.kernel[...].astype(x_MD.dtype), sizes)


class MixtureOfExperts(nnx.Module):
    """Sum over a token's experts of weight * down(activation(gate(x)) * up(x)).

    Every token is computed by all its experts: none is dropped for want of capacity.
    """

    def __init__(self, arch: Architecture, experts: Experts, *, rngs: nnx.Rngs) -> None:
        self.activation = arch.activation
        self.experts = experts
        self.router = nnx.Linear(arch.width, experts.count, use_bias=False, rngs=rngs)
        self.gate_proj = ExpertWeights(experts.count, arch.width, experts.hidden, rngs=rngs)
        self.up_proj = ExpertWeights(experts.count, arch.width, experts.hidden, rngs=rngs)
        self.down_proj = ExpertWeights(experts.count, experts.hidden, arch.width, rngs=rngs)

    def __call__(self, x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        x_ND = x_BTD.reshape(-1, x_BTD.shape[-1])
        routing = route(self.router(x_ND), self.experts)
        chosen = routing.experts.reshape(-1)
        order = jnp.argsort(chosen, stable=True)
        tokens = order // self.experts.per_token
        sizes = jnp.bincount(chosen, length=self.experts.count)
        x_MD = x_ND[tokens]
        inner = ACTIVATIONS[self.activation](self.gate_proj(x_MD, sizes)) * self.up_proj(x_MD, sizes)
        out = self.down_proj(inner, sizes)
        # Back in the order of tokens, so that a token's experts are added in one order whatever else is in the batch.
        by_token = jnp.zeros_like(out).at[order].set(out, unique_indices=True)
        weighted = by_token.reshape(*routing.weights.shape, -1) * routing.weights[..., None].astype(out.dtype)
        return jnp.sum(weighted, axis=1).reshape(x_BTD.shape)
