"""A decoder from a published checkpoint: a GGUF file, or a folder with `config.json` and safetensors."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open

from stages.engine.data.gguf import GgufFile, open_gguf
from stages.engine.models.architecture import Architecture
from stages.engine.models.families.catalog import FAMILIES, family_of_gguf
from stages.engine.models.families.family import Family, GgufFacts, WeightName
from stages.engine.models.families.fields import Fields
from stages.engine.models.paths import dotted
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.gguf import read_tensor
from stages.errors import UserError

ROPE_FACTORS = "rope_freqs.weight"
"""A GGUF tensor that is part of the architecture and no weight."""


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        arch: the decoder's sizes.
        names: tensors that it holds.
        read: one tensor as float32, in the layout of Hugging Face files.
        wanted: tensors of each weight of the decoder, in the order in which they are stacked.
    """

    path: Path
    arch: Architecture
    names: frozenset[str]
    read: Callable[[str], np.ndarray]
    wanted: dict[str, list[str]]


def load_decoder(path: Path) -> Decoder:
    """Loads a decoder in float32.

    Raises:
        UserError: not a checkpoint of a known family, or tensors are missing or of the wrong shape (all are named).
    """
    checkpoint = _open_gguf_checkpoint(path) if path.suffix == ".gguf" else _open_hf_checkpoint(path)
    model = nnx.eval_shape(lambda: Decoder(checkpoint.arch, rngs=nnx.Rngs(0)))
    graph, state = nnx.split(model)
    flat = {dotted(name): leaf for name, leaf in state.flat_state()}
    expected = {name: leaf.get_value().shape for name, leaf in flat.items()}
    weights = _read_all(checkpoint, expected)
    loaded = [(name, leaf.replace(weights[dotted(name)])) for name, leaf in state.flat_state()]
    return nnx.merge(graph, nnx.from_flat_state(dict(loaded)))


def _read_all(checkpoint: Checkpoint, expected: dict[str, tuple[int, ...]]) -> dict[str, jax.Array]:
    read = {name for names in checkpoint.wanted.values() for name in names}
    problems = [f"{name} is missing" for name in sorted(read - checkpoint.names)]
    problems += [f"{name} has no place in this family" for name in sorted(checkpoint.names - read) if _matters(name)]
    if problems:
        raise UserError(f"{checkpoint.path}: " + "; ".join(problems))
    weights: dict[str, jax.Array] = {}
    for target, names in checkpoint.wanted.items():
        parts = [_layout(target, checkpoint.read(name)) for name in names]
        whole = expected[target]
        shape = whole if len(names) == 1 and not target.startswith("blocks.") else whole[-parts[0].ndim :]
        wrong = [(name, part.shape) for name, part in zip(names, parts, strict=True) if part.shape != shape]
        problems += [f"{name} has shape {found}, expected {shape}" for name, found in wrong]
        if not problems:
            weights[target] = jnp.asarray(np.stack(parts).reshape(whole))
    if problems:
        raise UserError(f"{checkpoint.path}: " + "; ".join(problems))
    return weights


def _matters(name: str) -> bool:
    """Whether a model without this tensor is another one: a copy of the embedding or of rotary frequencies is not."""
    return not name.endswith(("lm_head.weight", "rotary_emb.inv_freq", ROPE_FACTORS))


def _layout(target: str, tensor: np.ndarray) -> np.ndarray:
    return tensor.swapaxes(-1, -2) if target.endswith(".kernel") else tensor


def weight_names(family: Family, arch: Architecture) -> list[WeightName]:
    """The tensors that this decoder has."""
    return [name for name in family.weights if not (arch.tied_embeddings and name.path.startswith("lm_head."))]


def _expand(template: str, arch: Architecture) -> list[str]:
    """Names of all layers, and of all experts of each layer, where the template has places for their numbers."""
    layers = range(arch.num_layers) if "{layer}" in template else range(1)
    experts = range(arch.experts.count) if arch.experts and "{expert}" in template else range(1)
    return [template.format(layer=layer, expert=expert) for layer in layers for expert in experts]


def _open_gguf_checkpoint(path: Path) -> Checkpoint:
    file = open_gguf(path)
    kind = str(file.metadata.get("general.architecture"))
    family = family_of_gguf(kind)
    if family is None:
        known = ", ".join(each.gguf_name for each in FAMILIES.values())
        raise UserError(f"{path}: GGUF architecture {kind!r} is not supported; supported are {known}")
    try:
        arch = family.from_gguf(Fields(file.metadata, f"{kind}."), _gguf_facts(file))
    except ValueError as error:
        raise UserError(f"{path}: unusable GGUF metadata: {error}") from error
    weights = weight_names(family, arch)
    forms = {name: weight for weight in weights for name in _expand(weight.gguf, arch)}

    def read(name: str) -> np.ndarray:
        tensor, weight = read_tensor(file, name), forms[name]
        if weight.gguf_form == "interleaved":
            return _split_halves(tensor, tensor.shape[0] // arch.head_size)
        return tensor - 1 if weight.gguf_form == "plus_one" else tensor

    wanted = {weight.path: _expand(weight.gguf, arch) for weight in weights}
    return Checkpoint(path, arch, frozenset(file.tensors), read, wanted)


def _gguf_facts(file: GgufFile) -> GgufFacts:
    if "token_embd.weight" not in file.tensors:
        raise ValueError("the tensor token_embd.weight is missing")
    factors = read_tensor(file, ROPE_FACTORS) if ROPE_FACTORS in file.tensors else None
    return GgufFacts(file.tensors["token_embd.weight"].shape[0], "output.weight" not in file.tensors, factors)


def _split_halves(tensor: np.ndarray, heads: int) -> np.ndarray:
    """From rows (x0, y0, x1, y1, …) within each head to (x0, x1, …, y0, y1, …), the layout that `rope` rotates."""
    return tensor.reshape(heads, -1, 2, tensor.shape[-1]).swapaxes(1, 2).reshape(tensor.shape)


def _open_hf_checkpoint(path: Path) -> Checkpoint:
    config_file, shards = path / "config.json", sorted(path.glob("*.safetensors"))
    if not config_file.is_file() or not shards:
        raise UserError(f"{path}: expected a .gguf file, or a folder with config.json and *.safetensors")
    try:
        config = json.loads(config_file.read_text())
        if not isinstance(config, dict):
            raise ValueError("config.json holds no object")
        family = FAMILIES.get(str(config.get("model_type")))
        if family is None:
            kind, known = config.get("model_type"), ", ".join(FAMILIES)
            raise UserError(f"{config_file}: model_type {kind!r} is not supported; supported are {known}")
        arch = family.from_hf(Fields(config))
        files = [safe_open(shard, framework="numpy") for shard in shards]
    except (ValueError, SafetensorError) as error:
        raise UserError(f"{path}: unusable checkpoint: {error}") from error
    where = {name: file for file in files for name in file.keys()}  # noqa: SIM118

    def read(name: str) -> np.ndarray:
        return np.asarray(where[name].get_tensor(name), dtype=np.float32)

    wanted = {weight.path: _expand(weight.hf, arch) for weight in weight_names(family, arch)}
    return Checkpoint(path, arch, frozenset(where), read, wanted)
