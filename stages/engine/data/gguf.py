"""Reads the GGUF container: typed metadata and the places of tensors, without touching their bytes.

Format: the GGUF specification of the ggml project, versions 2 and 3, little-endian.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.errors import UserError

GgufValue = int | float | bool | str | list[int] | list[float] | list[bool] | list[str]

MAGIC = b"GGUF"
STRING, ARRAY = 8, 9
SCALARS = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


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
    """An open file: metadata by key, tensors by name, and the mapped bytes."""

    metadata: Mapping[str, GgufValue]
    tensors: Mapping[str, GgufTensor]
    data: mmap.mmap


class _Cursor:
    """Reads values one after another."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, dtype: np.dtype) -> int | float | bool:
        value = np.frombuffer(self.data, dtype, 1, self.at)[0].item()
        self.at += dtype.itemsize
        return value

    def count(self) -> int:
        (value,) = struct.unpack_from("<Q", self.data, self.at)
        self.at += 8
        return value

    def number(self) -> int:
        (value,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4
        return value

    def text(self) -> str:
        size = self.count()
        value = self.data[self.at : self.at + size].decode("utf-8", errors="replace")
        self.at += size
        return value

    def value(self, kind: int) -> GgufValue:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        item, size = self.number(), self.count()
        if item == STRING:
            return [self.text() for _ in range(size)]
        dtype = SCALARS[item]
        values = np.frombuffer(self.data, dtype, size, self.at).tolist()
        self.at += dtype.itemsize * size
        return values

    def tensor(self) -> tuple[str, GgufTensor]:
        name = self.text()
        sizes = [self.count() for _ in range(self.number())]
        return name, GgufTensor(tuple(reversed(sizes)), self.number(), self.count())


def open_gguf(path: Path) -> GgufFile:
    """Maps a GGUF file and reads its header.

    Raises:
        UserError: the file is not GGUF of version 2 or 3, or is cut off.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return _read_header(data)
    except (struct.error, ValueError, KeyError) as error:
        raise UserError(f"{path}: not a readable GGUF file ({error}); download it again") from error


def _read_header(data: mmap.mmap) -> GgufFile:
    if data[:4] != MAGIC:
        raise ValueError(f"starts with {data[:4]!r} and not with {MAGIC!r}")
    cursor = _Cursor(data)
    cursor.at = 4
    version = cursor.number()
    if version not in (2, 3):
        raise ValueError(f"version {version}, expected 2 or 3")
    num_tensors, num_values = cursor.count(), cursor.count()
    metadata = {cursor.text(): cursor.value(cursor.number()) for _ in range(num_values)}
    tensors = dict(cursor.tensor() for _ in range(num_tensors))
    alignment = metadata.get("general.alignment", 32)
    assert isinstance(alignment, int)
    start = -(-cursor.at // alignment) * alignment
    placed = {
        name: GgufTensor(tensor.shape, tensor.quantization, start + tensor.offset) for name, tensor in tensors.items()
    }
    return GgufFile(metadata, placed, data)
