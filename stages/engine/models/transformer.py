"""The decoder that serves every family."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import jax
from flax import nnx
from jaxtyping import Array, Float, Int, PyTree

from stages.engine.models.architecture import Architecture
from stages.engine.models.attention import Attend, Attention, KeyValue
from stages.engine.models.mlp import Mlp
from stages.engine.models.rope import Rope, make_rope

LayerAttend = Callable[
    [PyTree, Float[Array, "B T N H"], Float[Array, "B T K H"], Float[Array, "B T K H"]], Float[Array, "B T N H"]
]
"""`Attend` with the layer's own slice of a cache first."""


Cells: TypeAlias = nnx.State
"""Weights in the tree of the modules that hold them."""


class Block(nnx.Module):
    """One pre-norm layer."""

    def __init__(self, arch: Architecture, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = nnx.RMSNorm(arch.width, epsilon=arch.norm_epsilon, rngs=rngs)
        self.attention = Attention(arch, rngs=rngs)
        self.mlp_norm = nnx.RMSNorm(arch.width, epsilon=arch.norm_epsilon, rngs=rngs)
        self.mlp = Mlp(arch, rngs=rngs)

    def __call__(
        self, x_BTD: Float[Array, "B T D"], rope: Rope, attend: Attend
    ) -> tuple[Float[Array, "B T D"], KeyValue]:
        mixed, key_value = self.attention(self.attention_norm(x_BTD), rope, attend)
        x_BTD = x_BTD + mixed
        return x_BTD + self.mlp(self.mlp_norm(x_BTD)), key_value


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
        self.norm = nnx.RMSNorm(arch.width, epsilon=arch.norm_epsilon, rngs=rngs)
        if not arch.tied_embeddings:
            self.lm_head = nnx.Linear(arch.width, arch.vocab_size, use_bias=False, rngs=rngs)

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        positions: Int[Array, "B T"],
        attend: LayerAttend,
        cache: PyTree = None,
    ) -> tuple[Float[Array, "B T D"], KeyValue]:
        """Runs all layers.

        Args:
            tokens: ids.
            positions: for the rotary embedding.
            attend: attention over the tokens and the layer's cache.
            cache: arrays with a leading layer axis, handed to `attend` layer by layer.

        Returns:
            Normalised hidden states, and every layer's keys and values of these tokens.
        """
        rope = make_rope(positions, self.arch.head_size, self.arch.rope_theta)
        graph, weights = nnx.split(self.blocks)

        def run_layer(x_BTD: Array, layer: tuple[PyTree, PyTree]) -> tuple[Array, KeyValue]:
            layer_weights, layer_cache = layer
            return nnx.merge(graph, layer_weights)(x_BTD, rope, partial(attend, layer_cache))

        x_BTD, key_values = jax.lax.scan(run_layer, self.embed(tokens), (weights, cache))
        return self.norm(x_BTD), key_values

    def logits(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """Scores of the next token."""
        return self.embed.attend(hidden) if self.arch.tied_embeddings else self.lm_head(hidden)
