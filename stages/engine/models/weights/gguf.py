"""Tensors of a GGUF file as float32."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from stages.engine.data.gguf import GgufFile, GgufTensor
from stages.errors import UserError

Blocks = UInt8[np.ndarray, "N bytes"]


def _half(blocks: Blocks, start: int) -> Float[np.ndarray, "N 1"]:
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _q4_1(blocks: Blocks) -> Float[np.ndarray, "N 32"]:
    """Scale and minimum as halves, then 32 nibbles: low halves first."""
    packed = blocks[:, 4:]
    nibbles = np.concatenate([packed & 15, packed >> 4], axis=1)
    return nibbles * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Blocks) -> Float[np.ndarray, "N 32"]:
    """Scale as a half, then 32 signed bytes."""
    return blocks[:, 2:].view(np.int8) * _half(blocks, 0)


@dataclass(frozen=True)
class Quantization:
    """How many bytes a block of values takes, and how to read blocks."""

    block_size: int
    block_bytes: int
    decode: Callable[[Blocks], np.ndarray]


QUANTIZATIONS: Mapping[int, Quantization] = {
    0: Quantization(1, 4, lambda blocks: blocks.view("<f4")),
    1: Quantization(1, 2, lambda blocks: blocks.view("<f2").astype(np.float32)),
    3: Quantization(32, 20, _q4_1),
    8: Quantization(32, 34, _q8_0),
}


def read_tensor(file: GgufFile, name: str) -> Float[np.ndarray, "..."]:
    """Reads and dequantises one tensor.

    Raises:
        UserError: the tensor's quantisation is not supported, or the file is cut off.
    """
    tensor: GgufTensor = file.tensors[name]
    kind = QUANTIZATIONS.get(tensor.quantization)
    if kind is None:
        raise UserError(f"tensor {name}: GGUF quantisation type {tensor.quantization} is not supported")
    num_blocks = int(np.prod(tensor.shape)) // kind.block_size
    end = tensor.offset + num_blocks * kind.block_bytes
    if end > len(file.data):
        raise UserError(f"tensor {name} ends at byte {end}, but the file has {len(file.data)}: it is cut off")
    raw = np.frombuffer(file.data, np.uint8, num_blocks * kind.block_bytes, tensor.offset)
    return kind.decode(raw.reshape(num_blocks, kind.block_bytes)).reshape(tensor.shape)
