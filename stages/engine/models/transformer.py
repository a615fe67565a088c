"""The decoder that serves every family."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PyTree

from stages.engine.cluster.axes import constrain
from stages.engine.models.architecture import Architecture
from stages.engine.models.attention import Attention, KeyValue, Look, Part, within_window
from stages.engine.models.config import Remat
from stages.engine.models.mlp import Mlp
from stages.engine.models.moe import MixtureOfExperts
from stages.engine.models.norm import RmsNorm
from stages.engine.models.remat import rematerialised
from stages.engine.models.rope import Rope, make_rope

LayerLook = Callable[[PyTree, Float[Array, "B T K H"], Float[Array, "B T K H"]], Sequence[Part]]
"""`Look` with the layer's own slice of a cache first."""


Cells: TypeAlias = nnx.State
"""Weights in the tree of the modules that hold them."""


class Block(nnx.Module):
    """One pre-norm layer, with norms after attention and feed-forward too where the family has them."""

    def __init__(self, arch: Architecture, *, rngs: nnx.Rngs) -> None:
        def norm() -> RmsNorm:
            return RmsNorm(arch.width, epsilon=arch.norm_epsilon, offset=arch.norm_offset)

        self.attention_norm = norm()
        self.attention = Attention(arch, rngs=rngs)
        self.mlp_norm = norm()
        self.mlp = Mlp(arch, rngs=rngs) if arch.experts is None else MixtureOfExperts(arch, arch.experts, rngs=rngs)
        self.post_norms = arch.post_norms
        if arch.post_norms:
            self.attention_post_norm = norm()
            self.mlp_post_norm = norm()

    def __call__(self, x_BTD: Float[Array, "B T D"], rope: Rope, look: Look) -> tuple[Float[Array, "B T D"], KeyValue]:
        mixed, key_value = self.attention(self.attention_norm(x_BTD), rope, look)
        x_BTD = x_BTD + (self.attention_post_norm(mixed) if self.post_norms else mixed)
        fed = self.mlp(self.mlp_norm(x_BTD))
        return x_BTD + (self.mlp_post_norm(fed) if self.post_norms else fed), key_value


def _make_blocks(arch: Architecture, rngs: nnx.Rngs) -> Block:
    @nnx.split_rngs(splits=arch.num_layers)
    @nnx.vmap(in_axes=0, out_axes=0)
    def make(layer_rngs: nnx.Rngs) -> Block:
        return Block(arch, rngs=layer_rngs)

    return make(rngs)


class Decoder(nnx.Module):
    """Embedding, blocks, final norm and output projection.

    The blocks' weights are stacked on a leading layer axis and run by one `scan`: compile time does not grow with
    depth.
    """

    def __init__(self, arch: Architecture, *, rngs: nnx.Rngs) -> None:
        self.arch = arch
        self.embed = nnx.Embed(arch.vocab_size, arch.width, rngs=rngs)
        self.blocks = _make_blocks(arch, rngs)
        self.norm = RmsNorm(arch.width, epsilon=arch.norm_epsilon, offset=arch.norm_offset)
        if not arch.tied_embeddings:
            self.lm_head = nnx.Linear(arch.width, arch.vocab_size, use_bias=False, rngs=rngs)

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        look: LayerLook,
        cache: PyTree = None,
        remat: Remat = "none",
    ) -> tuple[Float[Array, "B T D"], KeyValue]:
        """Runs all layers.

        Args:
            tokens: ids.
            positions: for the rotary embedding, and for layers that see only near tokens.
            look: what the tokens' queries may meet, from a layer's cache and their own keys and values.
            cache: arrays with a leading layer axis, handed to `look` layer by layer.
            remat: what a backward pass computes again.

        Returns:
            Normalised hidden states, and every layer's keys and values of these tokens.
        """
        graph, weights = nnx.split(self.blocks)
        of_layer = make_layer_view(self.arch, positions, look)

        def run_layer(x_BTD: Array, layer: tuple[PyTree, PyTree, Array]) -> tuple[Array, KeyValue]:
            layer_weights, layer_cache, near = layer
            x_BTD, key_value = nnx.merge(graph, layer_weights)(x_BTD, *of_layer(layer_cache, near))
            return constrain(x_BTD, "rows", "tokens", None), key_value

        table_VD = constrain(self.embed.embedding[...], "vocab", None)
        x_BTD = constrain(jnp.take(table_VD, tokens, axis=0), "rows", "tokens", None)
        x_BTD = x_BTD * jnp.asarray(self.arch.embedding_scale, x_BTD.dtype)
        x_BTD, key_values = jax.lax.scan(
            rematerialised(run_layer, remat), x_BTD, (weights, cache, jnp.asarray(near_layers(self.arch)))
        )
        return self.norm(x_BTD), key_values

    def logits(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """Scores of the next token."""
        scores = self.embed.attend(hidden) if self.arch.tied_embeddings else self.lm_head(hidden)
        cap = self.arch.final_soft_cap
        return scores if cap is None else cap * jnp.tanh(scores / cap)


def near_layers(arch: Architecture) -> Bool[np.ndarray, " L"]:
    """Which layers see only near tokens."""
    window = arch.window
    return np.array([window is not None and bool((layer + 1) % window.period) for layer in range(arch.num_layers)])


def make_layer_view(
    arch: Architecture, positions: Int[Array, "B T"], look: LayerLook
) -> Callable[[PyTree, Bool[Array, ""]], tuple[Rope, Look]]:
    """From a layer's cache, and whether it sees only near tokens, to its rotary embedding and what it may look at."""
    rope = make_rope(positions, arch.head_size, arch.rope)
    if arch.window is None:
        return lambda cache, _: (rope, lambda k, v: look(cache, k, v))
    size = arch.window.size
    near_rope = rope if arch.window.rope is None else make_rope(positions, arch.head_size, arch.window.rope)

    def view(cache: PyTree, near: Bool[Array, ""]) -> tuple[Rope, Look]:
        window = jnp.where(near, size, jnp.iinfo(jnp.int32).max)
        chosen = Rope(*(jnp.where(near, here, other) for here, other in zip(near_rope, rope, strict=True)))
        return chosen, lambda k, v: within_window(look(cache, k, v), positions, window)

    return view
