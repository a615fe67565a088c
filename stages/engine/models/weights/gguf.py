"""Tensors of a GGUF file, or rows of them, as floats."""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, UInt8

from stages.engine.data.ggml_types import GGML_TYPES
from stages.engine.data.gguf import GgufFile
from stages.engine.models.weights.ggml_blocks import DECODERS, Decode
from stages.errors import UserError

PIECE_VALUES = 1 << 17
"""Decoded at a time: what is needed beside the result stays in a core's cache, however large the tensor is."""


def read_tensor(file: GgufFile, name: str, out: Float[np.ndarray, "..."] | None = None) -> Float[np.ndarray, "..."]:
    """Reads and dequantises one tensor.

    Args:
        file: the open file.
        name: one of its tensors.
        out: where to write it, in the tensor's shape and any type of float; a transposed view is filled as well as a
            whole array. A new array of float32 when None.

    Raises:
        UserError: the tensor's quantisation is not one of those known here.
    """
    return read_rows(file, name, slice(None), out)


def read_rows(
    file: GgufFile, name: str, rows: slice, out: Float[np.ndarray, "..."] | None = None
) -> Float[np.ndarray, "..."]:
    """Reads and dequantises a slice of a tensor's first axis, without touching the bytes of other rows.

    Args:
        file: the open file.
        name: one of its tensors.
        rows: of its first axis, without a step.
        out: as of `read_tensor`, in the slice's shape.

    Raises:
        UserError: the tensor's quantisation is not one of those known here.
    """
    tensor = file.tensors[name]
    decode, block_size, block_bytes = _decoder(file, name)
    start, stop, step = rows.indices(tensor.shape[0])
    assert step == 1, "rows follow one another"
    out = np.empty((max(stop - start, 0), *tensor.shape[1:]), np.float32) if out is None else out
    assert out.shape == (max(stop - start, 0), *tensor.shape[1:]), f"{name}: a place of shape {out.shape}"
    value = start * math.prod(tensor.shape[1:])
    assert value % block_size == out.size % block_size == 0, f"{name}: {rows} cuts a block"
    # Damaged scales may be infinite: whether values are numbers is judged by who reads them.
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in _pieces(out):
            num_bytes = piece.size // block_size * block_bytes
            at = tensor.offset + value // block_size * block_bytes
            _write(decode, np.frombuffer(file.data, np.uint8, num_bytes, at), piece)
            value += piece.size
    return out


def _decoder(file: GgufFile, name: str) -> tuple[Decode, int, int]:
    """How to read a tensor's blocks, the values in one, and its bytes."""
    number = file.tensors[name].quantization
    kind = GGML_TYPES.get(number)
    decode = None if kind is None else DECODERS.get(kind.name)
    if kind is None or decode is None:
        known = ", ".join(DECODERS)
        found = f"type {number}, which is not known" if kind is None else f"type {kind.name}"
        raise UserError(f"{file.path}: tensor {name} is of {found}; supported are {known}: convert the file to one")
    return decode, kind.block_size, kind.block_bytes


def _pieces(out: np.ndarray) -> Iterator[np.ndarray]:
    """Runs of whole rows, in the file's order, as views."""
    if out.ndim == 1:
        yield out
        return
    for index in np.ndindex(out.shape[:-2]):
        matrix = out[index]
        num_rows = max(1, PIECE_VALUES // max(1, matrix.shape[1]))
        yield from (matrix[row : row + num_rows] for row in range(0, len(matrix), num_rows))


def _write(decode: Decode, raw: UInt8[np.ndarray, "bytes"], piece: Float[np.ndarray, "..."]) -> None:
    if piece.dtype == np.float32 and piece.flags.c_contiguous:
        decode(raw, piece.reshape(-1))
        return
    values = np.empty(piece.size, np.float32)
    decode(raw, values)
    piece[...] = values.reshape(piece.shape)
