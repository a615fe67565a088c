"""Reads the GGUF container: typed metadata and the places of tensors, without touching their bytes.

Format: the GGUF specification of the ggml project, versions 2 and 3, little-endian.
"""

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from stages.engine.data.ggml_types import GGML_TYPES
from stages.engine.data.gguf_values import Cursor, GgufValue
from stages.errors import UserError

MAGIC = b"GGUF"
MAX_DIMS = 4
ADVICE = "download it again, or convert the model anew"
MIN_VALUE_BYTES, MIN_TENSOR_BYTES = 13, 32
"""The least that a key with its value, and the place of a tensor, take."""


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor lies.

    Attributes:
        shape: sizes, outermost first (the file stores them innermost first).
        quantization: ggml's type number.
        offset: of the first byte in the file.
    """

    shape: tuple[int, ...]
    quantization: int
    offset: int


@dataclass(frozen=True)
class GgufFile:
    """An open file: metadata by key, tensors by name, the mapped bytes, and where it lies."""

    metadata: Mapping[str, GgufValue]
    tensors: Mapping[str, GgufTensor]
    data: mmap.mmap
    path: Path


def open_gguf(path: Path) -> GgufFile:
    """Maps a GGUF file and reads its header.

    Raises:
        UserError: the file is not little-endian GGUF of version 2 or 3, is cut off or damaged, or has tensors that lie
            where they cannot (all are named).
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        metadata, tensors = _read_header(data)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not a readable GGUF file ({error}); {ADVICE}") from error
    problems = list(_misplaced(tensors, len(data)))
    if problems:
        raise UserError(f"{path}: not a readable GGUF file ({'; '.join(problems)}); {ADVICE}")
    return GgufFile(metadata, tensors, data, path)


def _read_header(data: mmap.mmap) -> tuple[dict[str, GgufValue], dict[str, GgufTensor]]:
    if data[:4] != MAGIC:
        raise ValueError(f"it starts with {data[:4]!r} and not with {MAGIC!r}")
    cursor = Cursor(data)
    cursor.at = len(MAGIC)
    _check_version(cursor.number())
    num_tensors = cursor.num_items("tensors", MIN_TENSOR_BYTES)
    num_values = cursor.num_items("values", MIN_VALUE_BYTES)
    metadata = dict[str, GgufValue]()
    for _ in range(num_values):
        key = cursor.text()
        if key in metadata:
            raise ValueError(f"it holds the key {key} twice")
        metadata[key] = cursor.value()
    found = [_read_tensor(cursor) for _ in range(num_tensors)]
    return metadata, _place(found, cursor.at, metadata.get("general.alignment", 32))


def _check_version(version: int) -> None:
    if version and not version & 0xFFFF:
        raise ValueError("it is big-endian, expected little-endian")
    if version not in (2, 3):
        raise ValueError(f"it has version {version}, expected 2 or 3")


def _read_tensor(cursor: Cursor) -> tuple[str, GgufTensor]:
    name, num_dims = cursor.text(), cursor.number()
    if not 1 <= num_dims <= MAX_DIMS:
        raise ValueError(f"tensor {name} has {num_dims} dimensions, expected 1 to {MAX_DIMS}")
    sizes = [cursor.count() for _ in range(num_dims)]
    return name, GgufTensor(tuple(reversed(sizes)), cursor.number(), cursor.count())


def _place(found: list[tuple[str, GgufTensor]], header_bytes: int, alignment: GgufValue) -> dict[str, GgufTensor]:
    """Tensors by name, with offsets from the start of the file: those stored are from the end of its header."""
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment!r}, expected a power of two")
    start = -(-header_bytes // alignment) * alignment
    placed = dict[str, GgufTensor]()
    for name, tensor in found:
        if name in placed:
            raise ValueError(f"it holds the tensor {name} twice")
        if tensor.offset % alignment:
            raise ValueError(f"tensor {name} starts at {tensor.offset}, no multiple of {alignment}")
        placed[name] = GgufTensor(tensor.shape, tensor.quantization, start + tensor.offset)
    return placed


def _misplaced(tensors: Mapping[str, GgufTensor], file_bytes: int) -> Iterator[str]:
    """What keeps tensors from being read where they are said to lie; a type that ggml lacks is judged by its reader."""
    extents = list[tuple[int, int, str]]()
    for name, tensor in tensors.items():
        kind = GGML_TYPES.get(tensor.quantization)
        if kind is None:
            continue
        if tensor.shape[-1] % kind.block_size:
            yield f"tensor {name} has rows of {tensor.shape[-1]} values, no multiple of {kind.name}'s {kind.block_size}"
        num_bytes = math.prod(tensor.shape) // kind.block_size * kind.block_bytes
        extents.append((tensor.offset, tensor.offset + num_bytes, name))
    extents.sort()
    for (_, end, name), (start, _, following) in pairwise(extents):
        if end > start:
            yield f"tensors {name} and {following} overlap"
    beyond = [(end, name) for _, end, name in extents if end > file_bytes]
    if beyond:
        end, name = beyond[0]
        yield f"cut off at byte {file_bytes}: tensor {name} ends at {end}; {len(beyond)} in all are not whole"
