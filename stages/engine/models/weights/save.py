"""A whole model as a folder in the layout of Hugging Face, which other programs read and `load` does too."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float

from stages.engine.data.tokenizer import Tokenizer
from stages.engine.data.tokenizer_save import save_tokenizer
from stages.engine.models.architecture import Architecture
from stages.engine.models.families.family import REWARD_HEAD, Family, HfValue
from stages.engine.models.weights.abstract import weight_shapes
from stages.engine.models.weights.checkpoint import (
    OUTPUT_PATH,
    Piece,
    is_kernel,
    make_pieces,
    stored_shape,
    weight_names,
)
from stages.engine.models.weights.hf import CONFIG_FILE
from stages.engine.models.weights.shards import ShardWriter, Tensor

MAX_SHARD_BYTES = 5 * 10**9
"""As `transformers` divides models."""


def save_hf(
    folder: Path,
    family: Family,
    arch: Architecture,
    weights: Iterable[tuple[str, Float[np.ndarray | Array, "..."]]],
    tokenizer: Tokenizer,
    *,
    dtype: DTypeLike = jnp.float32,
    reward: bool = False,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes config, weights and tokenizer; equal models give equal bytes.

    Args:
        folder: that exists.
        family: whose names the tensors get.
        arch: sizes of the decoder.
        weights: all of them, by path and with layers stacked, in any order. They may be made one by one: each is
            written before the next is asked for.
        tokenizer: of the model.
        dtype: of the files: float32, bfloat16 or float16.
        reward: whether this is a reward model: its head is among the weights, and an output projection is left out.
        max_shard_bytes: largest sum of the tensors in one file.
    """
    shapes = {**weight_shapes(arch), REWARD_HEAD.path: (arch.width, 1)}
    pieces = {name.path: make_pieces(name.path, name.hf, arch) for name in weight_names(family, arch, reward=reward)}
    ordered = sorted(((path, piece) for path in pieces for piece in pieces[path]), key=lambda each: _rank(*each))
    tensors = [Tensor(piece.name, stored_shape(path, shapes[path], piece)) for path, piece in ordered]
    with ShardWriter(folder, tensors, np.dtype(dtype), max_shard_bytes) as files:
        for path, stack in weights:
            if reward and path.startswith(OUTPUT_PATH):
                continue
            for piece in pieces[path]:
                own = np.asarray(stack[piece.lead])
                files.write(piece.name, own.T if is_kernel(path) else own)
    kind = _reward_entries(family, tokenizer) if reward else {"architectures": [family.hf_class]}
    _write_config(folder, family, arch, tokenizer, np.dtype(dtype).name, kind)
    save_tokenizer(folder, tokenizer)


def _rank(path: str, piece: Piece) -> int:
    """The embedding first, then layer by layer."""
    if path.startswith("embed."):
        return -1
    return piece.lead[0] if piece.lead else 1 << 30


def _reward_entries(family: Family, tokenizer: Tokenizer) -> dict[str, HfValue]:
    """What makes other programs read one number, at the last token that is no padding.

    Padding with an end token would hide it from them; without a padding token they take one row at a time.
    """
    padding = tokenizer.backend.token_to_id(tokenizer.pad_token) if tokenizer.pad_token else None
    return {
        "architectures": [family.hf_reward_class],
        "id2label": {"0": "reward"},
        "label2id": {"reward": 0},
        "pad_token_id": None if padding in tokenizer.eos_ids else padding,
    }


def _write_config(
    folder: Path, family: Family, arch: Architecture, tokenizer: Tokenizer, dtype: str, kind: Mapping[str, HfValue]
) -> None:
    ends: list[int] = [tokenizer.eos_id, *sorted(tokenizer.eos_ids - {tokenizer.eos_id})]
    config: dict[str, HfValue | list[int]] = {
        **kind,
        "model_type": family.model_type,
        **family.to_hf(arch),
        # Old and new readers' word for the same.
        "dtype": dtype,
        "torch_dtype": dtype,
        "bos_token_id": tokenizer.backend.token_to_id(tokenizer.bos_token) if tokenizer.bos_token else None,
        "eos_token_id": ends if len(ends) > 1 else ends[0],
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
