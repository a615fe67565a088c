"""Low-rank adapters (arXiv 2106.09685) through qwix: how they are attached, parted from the base, saved and loaded."""

import math
from pathlib import Path
from typing import NamedTuple, TypeAlias
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import qwix
from flax import nnx
from jaxtyping import Array, Float
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from stages.contract import Adapter
from stages.engine.data.uniforms import uniforms
from stages.engine.models.architecture import RopeSettings
from stages.engine.models.attention import Part
from stages.engine.models.config import LoraConfig
from stages.engine.models.paths import dotted
from stages.engine.models.rope import make_rope
from stages.engine.models.transformer import Block, Cells, Decoder
from stages.errors import UserError

ADAPTER_FILE = "adapter.safetensors"

Weights = dict[str, Float[Array, "..."]]
"""Trained arrays by dotted path, layers stacked on the first axis."""

Graph: TypeAlias = nnx.GraphDef[Decoder]


class Frozen(NamedTuple):
    """What training leaves alone; several adapters may share one base.

    Attributes:
        graph: the structure of the decoder and its adapter.
        base: the base's weights.
    """

    graph: Graph
    base: Cells


def bind(graph: Graph, adapter: Weights, base: Cells) -> Decoder:
    """The decoder with these weights; inside a compiled function this costs nothing."""
    leaves = [(tuple(name.split(".")), nnx.LoRAParam(value)) for name, value in adapter.items()]
    return nnx.merge(graph, nnx.from_flat_state(leaves), base)


def split(model: Decoder) -> tuple[Frozen, Weights]:
    """Parts a decoder into its frozen base and its adapter, which is empty for a bare base."""
    graph, adapter, base = nnx.split(model, nnx.LoRAParam, ...)
    return Frozen(graph, base), {dotted(path): leaf.get_value() for path, leaf in adapter.flat_state()}


def attach_lora(model: Decoder, config: LoraConfig, seed: int) -> None:
    """Puts a fresh adapter on every target of every block: A uniform (He), B zero, so the function is unchanged.

    qwix sees one block and places the adapter's parameters in it; their values are stacked over layers as the base's.
    """
    graph, weights = nnx.split(model.blocks)

    def adapt_first() -> Block:
        return _adapt(nnx.merge(graph, jax.tree.map(lambda x: x[0], weights)), config)

    adapted_graph, shapes, _ = nnx.split(nnx.eval_shape(adapt_first), nnx.LoRAParam, ...)
    values = {
        path: leaf.replace(_initial(dotted(path), (model.arch.num_layers, *leaf.get_value().shape), seed))
        for path, leaf in shapes.flat_state()
    }
    model.blocks = nnx.merge(adapted_graph, nnx.from_flat_state(values), weights)


def _adapt(block: Block, config: LoraConfig) -> Block:
    provider = qwix.LoraProvider(module_path=f".*({'|'.join(config.targets)})", rank=config.rank, alpha=config.alpha)
    x_BTD = jnp.zeros((1, 1, block.attention.q_proj.in_features))
    rope = make_rope(jnp.zeros((1, 1), jnp.int32), block.attention.head_size, RopeSettings(1.0))
    adapted = qwix.apply_lora_to_model(block, provider, x_BTD, rope, _look_at_itself, rngs=nnx.Rngs(0))
    assert isinstance(adapted, Block)
    return adapted


def _look_at_itself(key: Array, value: Array) -> list[Part]:
    return [Part(key, value, jnp.ones((1, 1, 1), bool), jnp.zeros((1, 1), jnp.int32))]


def _initial(name: str, shape: tuple[int, ...], seed: int) -> Float[Array, "..."]:
    if name.endswith("lora_b"):
        return jnp.zeros(shape)
    bound = (6.0 / shape[-2]) ** 0.5
    drawn = uniforms(np.random.Philox(key=(seed, crc32(name.encode()))), math.prod(shape))
    return jnp.asarray((2 * drawn - 1).reshape(shape) * np.float32(bound))


def save_adapter(folder: Path, adapter: Weights, config: LoraConfig) -> Adapter:
    """Writes the adapter's tensors; equal weights give equal bytes."""
    save_file({name: np.asarray(value) for name, value in sorted(adapter.items())}, folder / ADAPTER_FILE)
    return Adapter(file=ADAPTER_FILE, rank=config.rank, alpha=config.alpha, targets=config.targets)


def load_adapter(path: Path, shapes: Weights) -> Weights:
    """Reads an adapter of the given names and shapes.

    Raises:
        UserError: the file holds no tensors, or some are missing, unknown or of another shape; all are named.
    """
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: {error}") from error
    problems = [f"{name} is missing" for name in shapes if name not in tensors]
    problems += [f"{name} is not part of this model" for name in tensors if name not in shapes]
    problems += [
        f"{name} has shape {tensors[name].shape}, expected {value.shape}"
        for name, value in shapes.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if problems:
        raise UserError(f"{path}: " + "; ".join(problems))
    return {name: jnp.asarray(tensors[name]) for name in shapes}
