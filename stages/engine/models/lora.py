"""Low-rank adapters (arXiv 2106.09685) through qwix: how they are attached, parted from the base, saved and loaded."""

import math
from collections.abc import Mapping
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

from stages.contract import Adapter, Quantization
from stages.engine.data.uniforms import uniforms
from stages.engine.models.architecture import Architecture, RopeSettings
from stages.engine.models.attention import Part
from stages.engine.models.config import ATTENTION, MLP, LoraConfig
from stages.engine.models.dropout import DROPOUT, Dropout, DropoutKeys, layer_keys
from stages.engine.models.experts import ExpertWeights, FewBits, LowRankExperts
from stages.engine.models.low_rank import LowRankProvider
from stages.engine.models.moe import MixtureOfExperts
from stages.engine.models.paths import dotted
from stages.engine.models.rope import make_rope
from stages.engine.models.transformer import Block, Cells, Decoder
from stages.engine.models.weights.abstract import abstract_decoder
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


def bind(graph: Graph, trained: Weights, base: Cells, dropout: Dropout | None = None) -> Decoder:
    """The decoder with these weights, the trained ones in the type that it computes in.

    Inside a compiled function this costs nothing, but for the cast where there is one.

    Args:
        graph: of the decoder.
        trained: the adapter, or whatever `split` parted.
        base: the rest.
        dropout: what the adapters drop of their inputs; training steps alone have it.
    """
    model = _merge(graph, trained, base)
    if model.arch.compute_dtype != "float32":
        model = _merge(graph, {name: value.astype(model.arch.compute_dtype) for name, value in trained.items()}, base)
    if dropout is not None:
        keys = DropoutKeys(layer_keys(dropout.keys, model.arch.num_layers), rate=dropout.rate)
        setattr(model.blocks, DROPOUT, keys)
        if isinstance(model.blocks.mlp, MixtureOfExperts):
            setattr(model.blocks.mlp, DROPOUT, keys)
    return model


def _merge(graph: Graph, trained: Weights, base: Cells) -> Decoder:
    leaves = [(tuple(name.split(".")), value) for name, value in trained.items()]
    return nnx.merge(graph, nnx.from_flat_state(leaves), base)


def split(model: Decoder, trainable: type[nnx.Param] = nnx.LoRAParam) -> tuple[Frozen, Weights]:
    """Parts a decoder into what is frozen and what is trained: its adapter, which is empty for a bare base.

    `nnx.Param` as `trainable` stands for all weights.
    """
    graph, trained, base = nnx.split(model, trainable, ...)
    return Frozen(graph, base), {dotted(path): leaf.get_value() for path, leaf in trained.flat_state()}


def adapted_decoder(
    arch: Architecture, weights: Weights, config: LoraConfig, seed: int, quantization: Quantization | None = None
) -> Decoder:
    """A decoder of weights by path, with a fresh adapter on every target of every block.

    A is uniform (He) and B zero, so the function is that of the base.

    Args:
        arch: of the decoder.
        weights: of the base by path, quantised already where they should be.
        config: of the adapter.
        seed: of A.
        quantization: how the linear layers among the weights are stored.

    Raises:
        UserError: a target is no linear layer of this model; all are named, and what there is.
    """
    model = abstract_decoder(arch)
    model.blocks = _adapted(model, weights, config, seed, quantization)
    graph, rest = nnx.split(model)
    known = {path: leaf.get_value() for path, leaf in rest.flat_state()}
    return nnx.merge(graph, nnx.from_flat_state([(path, weights.get(dotted(path), known[path])) for path in known]))


def _adapted(
    model: Decoder, weights: Weights, config: LoraConfig, seed: int, quantization: Quantization | None
) -> Block:
    """The model's blocks with adapter and given weights.

    qwix sees one block and places its parameters in it; their values are stacked over layers as the base's.
    """
    check_targets(model.arch, config)
    layers = _linear_layers(model.blocks)
    provider = LowRankProvider(_rules(config, layers, quantization))
    graph, stacked = nnx.split(model.blocks)

    def adapt(one_layer: Cells) -> Block:
        block = _adapt(nnx.merge(graph, one_layer), provider)
        if isinstance(block.mlp, MixtureOfExperts):
            _adapt_experts(block.mlp, config, quantization)
        return block

    one_layer = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), stacked)
    graph_of_adapted, shapes, base = nnx.split(nnx.eval_shape(adapt, one_layer), nnx.LoRAParam, ...)
    values = [
        (path, _initial(dotted(path), (model.arch.num_layers, *leaf.get_value().shape), seed))
        for path, leaf in shapes.flat_state()
    ]
    values += [(path, weights[f"blocks.{dotted(path)}"]) for path, _ in base.flat_state()]
    return nnx.merge(graph_of_adapted, nnx.from_flat_state(values))


def _linear_layers(block: Block) -> dict[str, str]:
    """Paths of a block's linear layers by their names."""
    linear = [path for path, layer in nnx.iter_modules(block) if isinstance(layer, nnx.Linear)]
    return {str(path[-1]): "/".join(map(str, path)) for path in linear}


def check_targets(arch: Architecture, config: LoraConfig) -> None:
    """Checks that every target is there, which needs no weights.

    Raises:
        UserError: a target is no linear layer of this model; all are named, and what there is.
    """
    layers = (*ATTENTION, *MLP, *(() if arch.experts is None else ("router",)))
    missing = [name for name in config.targets if name not in layers]
    if missing:
        raise UserError(
            f"model.lora.targets: {', '.join(missing)} are no linear layers of this model's blocks; "
            f"there are {', '.join(layers)}"
        )


def _rules(
    config: LoraConfig, layers: Mapping[str, str], quantization: Quantization | None
) -> list[qwix.QuantizationRule]:
    """One for each layer that has an adapter or a quantised kernel. qwix divides alpha by the rank."""
    rules = list[qwix.QuantizationRule]()
    for name, path in layers.items():
        # Routers are never stored in few bits.
        how = quantization if name in (*ATTENTION, *MLP) else None
        kind, tile = (how.kind, how.tile_size) if how else (None, None)
        if name in config.targets:
            alpha = config.scale * config.rank
            rules += [qwix.LoraRule(module_path=path, rank=config.rank, alpha=alpha, weight_qtype=kind, tile_size=tile)]
        elif how:
            rules += [qwix.QuantizationRule(module_path=path, weight_qtype=kind, tile_size=tile)]
    return rules


def _adapt(block: Block, provider: LowRankProvider) -> Block:
    x_BTD = jnp.zeros((1, 1, block.attention.q_proj.in_features))
    rope = make_rope(jnp.zeros((1, 1), jnp.int32), block.attention.head_size, RopeSettings(1.0))
    adapted = qwix.apply_lora_to_model(block, provider, x_BTD, rope, _look_at_itself, rngs=nnx.Rngs(0))
    assert isinstance(adapted, Block)
    return adapted


def _adapt_experts(mixture: MixtureOfExperts, config: LoraConfig, quantization: Quantization | None) -> None:
    """What qwix does to linear layers, for experts, whose grouped products it does not know."""
    mixture.adapter_scale = config.scale
    for name in MLP:
        layer = getattr(mixture, name)
        assert isinstance(layer, ExpertWeights)
        kernel = FewBits(layer.kernel[...].shape, quantization) if quantization else layer.kernel
        targeted = name in config.targets
        setattr(mixture, name, LowRankExperts(kernel, config.rank) if targeted else ExpertWeights(kernel))


def _look_at_itself(key: Array, value: Array) -> list[Part]:
    return [Part(key, value, jnp.ones((1, 1, 1), bool), jnp.zeros((1, 1), jnp.int32))]


def _initial(name: str, shape: tuple[int, ...], seed: int) -> Float[Array, "..."]:
    if name.endswith("lora_b"):
        return jnp.zeros(shape)
    bound = (6.0 / shape[-2]) ** 0.5
    drawn = uniforms(np.random.Philox(key=(seed, crc32(name.encode()))), math.prod(shape))
    return jnp.asarray((2 * drawn - 1).reshape(shape) * np.float32(bound))


def save_adapter(
    folder: Path, adapter: Weights, config: LoraConfig, quantization: Quantization | None = None
) -> Adapter:
    """Writes the adapter's tensors; equal weights give equal bytes."""
    save_file({name: np.asarray(value) for name, value in sorted(adapter.items())}, folder / ADAPTER_FILE)
    return Adapter(
        file=ADAPTER_FILE,
        rank=config.rank,
        alpha=config.alpha,
        targets=config.targets,
        scaling=config.scaling,
        quantization=quantization,
    )


def load_adapter(path: Path, shapes: Weights) -> Weights:
    """Reads an adapter of the given names and shapes.

    Raises:
        UserError: the file holds no tensors, or some are missing, unknown, of another shape or hold what is no number;
            all are named.
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
    problems += [f"{name} holds NaN or infinite values" for name in tensors if not np.isfinite(tensors[name]).all()]
    if problems:
        raise UserError(f"{path}: " + "; ".join(problems))
    return {name: jnp.asarray(tensors[name]) for name in shapes}
