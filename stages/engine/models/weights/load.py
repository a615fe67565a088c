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

from stages.engine.data.gguf import open_gguf
from stages.engine.models.architecture import Architecture
from stages.engine.models.families import llama
from stages.engine.models.paths import dotted
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.gguf import read_tensor
from stages.errors import UserError

HF_NAME, GGUF_NAME = 1, 2


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        arch: the decoder's sizes.
        names: tensors that it holds.
        read: one tensor as float32, in the layout of Hugging Face files.
        format: which column of the family's table names its tensors.
    """

    path: Path
    arch: Architecture
    names: frozenset[str]
    read: Callable[[str], np.ndarray]
    format: int


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
    wanted = _tensor_names(checkpoint)
    read = {name for names in wanted.values() for name in names}
    problems = [f"{name} is missing" for name in sorted(read - checkpoint.names)]
    problems += [f"{name} has no place in this family" for name in sorted(checkpoint.names - read) if _matters(name)]
    if problems:
        raise UserError(f"{checkpoint.path}: " + "; ".join(problems))
    weights: dict[str, jax.Array] = {}
    for target, names in wanted.items():
        parts = [_layout(target, checkpoint.read(name)) for name in names]
        shape = expected[target][1:] if len(names) > 1 or target.startswith("blocks.") else expected[target]
        wrong = [(name, part.shape) for name, part in zip(names, parts, strict=True) if part.shape != shape]
        problems += [f"{name} has shape {found}, expected {shape}" for name, found in wrong]
        if not problems:
            weights[target] = jnp.asarray(np.stack(parts) if target.startswith("blocks.") else parts[0])
    if problems:
        raise UserError(f"{checkpoint.path}: " + "; ".join(problems))
    return weights


def _matters(name: str) -> bool:
    """Whether a model without this tensor is another one: a copy of the embedding or of rotary frequencies is not."""
    return not name.endswith(("lm_head.weight", "rotary_emb.inv_freq"))


def _layout(target: str, tensor: np.ndarray) -> np.ndarray:
    return tensor.T if target.endswith(".kernel") else tensor


def _tensor_names(checkpoint: Checkpoint) -> dict[str, list[str]]:
    """Names in the checkpoint of each weight of the decoder, one for each layer where it has layers."""
    layers = range(checkpoint.arch.num_layers)
    wanted = {row[0]: [row[checkpoint.format].format(layer) for layer in layers] for row in llama.LAYER_WEIGHTS}
    for row in llama.GLOBAL_WEIGHTS:
        if not (row[0].startswith("lm_head.") and checkpoint.arch.tied_embeddings):
            wanted[row[0]] = [row[checkpoint.format]]
    return wanted


def _open_gguf_checkpoint(path: Path) -> Checkpoint:
    file = open_gguf(path)
    family = file.metadata.get("general.architecture")
    if family != llama.GGUF_ARCHITECTURE:
        raise UserError(f"{path}: GGUF architecture {family!r} is not supported, expected {llama.GGUF_ARCHITECTURE!r}")
    names = frozenset(file.tensors)
    try:
        arch = llama.architecture_from_gguf(file.metadata, names)
    except ValueError as error:
        raise UserError(f"{path}: unusable GGUF metadata: {error}") from error
    heads = {"num_heads": arch.num_heads, "num_kv_heads": arch.num_kv_heads}
    interleaved = {
        row[GGUF_NAME].format(layer): heads[llama.GGUF_INTERLEAVED[row[0]]]
        for row in llama.LAYER_WEIGHTS
        if row[0] in llama.GGUF_INTERLEAVED
        for layer in range(arch.num_layers)
    }

    def read(name: str) -> np.ndarray:
        tensor = read_tensor(file, name)
        return _split_halves(tensor, interleaved[name]) if name in interleaved else tensor

    return Checkpoint(path, arch, names, read, GGUF_NAME)


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
        if config.get("model_type") != llama.HF_MODEL_TYPE:
            family = config.get("model_type")
            raise UserError(f"{config_file}: model_type {family!r} is not supported, expected {llama.HF_MODEL_TYPE!r}")
        arch = llama.architecture_from_hf(config)
        files = [safe_open(shard, framework="numpy") for shard in shards]
    except (ValueError, SafetensorError) as error:
        raise UserError(f"{path}: unusable checkpoint: {error}") from error
    where = {name: file for file in files for name in file.keys()}  # noqa: SIM118

    def read(name: str) -> np.ndarray:
        return np.asarray(where[name].get_tensor(name), dtype=np.float32)

    return Checkpoint(path, arch, frozenset(where), read, HF_NAME)
