"""Writes safetensors files tensor by tensor, each to its place, so that no file is ever in memory.

Format: as in `safetensors_file`. Several files come with the index that Hugging Face folders have.
"""

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Float

from stages.engine.models.weights.cast import copy_values
from stages.engine.models.weights.checkpoint import Shape
from stages.engine.models.weights.hf import INDEX_FILE, WEIGHTS_FILE
from stages.engine.models.weights.safetensors_file import DTYPES, LENGTH_BYTES

NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Tensor(NamedTuple):
    """A tensor that will be written."""

    name: str
    shape: Shape


class _Slot(NamedTuple):
    file: BinaryIO
    start: int
    shape: Shape


class ShardWriter:
    """Files of a folder, open until all their tensors are written, which may come in any order."""

    def __init__(self, folder: Path, tensors: Sequence[Tensor], dtype: np.dtype, max_shard_bytes: int) -> None:
        """Write headers and index.

        Args:
            folder: that exists.
            tensors: in the order in which files hold them.
            dtype: of all: one of those in `DTYPES`.
            max_shard_bytes: largest sum of tensors in a file that has more than one.
        """
        self._dtype = dtype
        self._slots = dict[str, _Slot]()
        shards = _divide(tensors, dtype.itemsize, max_shard_bytes)
        names = [WEIGHTS_FILE]
        if len(shards) > 1:
            names = [f"model-{at:05d}-of-{len(shards):05d}.safetensors" for at in range(1, len(shards) + 1)]
            _write_index(folder, dict(zip(names, shards, strict=True)), dtype.itemsize)
        with ExitStack() as files:
            for name, shard in zip(names, shards, strict=True):
                self._begin(files.enter_context((folder / name).open("wb")), shard)
            self._files = files.pop_all()

    def _begin(self, file: BinaryIO, shard: Sequence[Tensor]) -> None:
        """Writes a header, padded with spaces so that tensors begin at a multiple of 8 bytes."""
        entries, end = dict[str, object](), 0
        for tensor in shard:
            start, end = end, end + _num_bytes(tensor, self._dtype.itemsize)
            entries[tensor.name] = {"dtype": NAMES[self._dtype], "shape": tensor.shape, "data_offsets": (start, end)}
        header = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
        header += b" " * (-len(header) % LENGTH_BYTES)
        file.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
        start = file.tell()
        for tensor in shard:
            self._slots[tensor.name] = _Slot(file, start, tensor.shape)
            start += _num_bytes(tensor, self._dtype.itemsize)

    def write(self, name: str, values: Float[np.ndarray, "..."]) -> None:
        """Writes one tensor, of any strides and of float32 or bfloat16."""
        file, start, shape = self._slots.pop(name)
        assert values.shape == shape, f"{name}: {values.shape} in a place of {shape}"
        stored = np.empty(shape, self._dtype)
        copy_values(values, stored)
        file.seek(start)
        file.write(stored.view(np.uint8).data)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()
        assert kind is not None or not self._slots, f"never written: {', '.join(self._slots)}"


def _num_bytes(tensor: Tensor, itemsize: int) -> int:
    return math.prod(tensor.shape) * itemsize


def _divide(tensors: Sequence[Tensor], itemsize: int, max_shard_bytes: int) -> list[list[Tensor]]:
    shards, room = [list[Tensor]()], max_shard_bytes
    for tensor in tensors:
        if shards[-1] and _num_bytes(tensor, itemsize) > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(tensor)
        room -= _num_bytes(tensor, itemsize)
    return shards


def _write_index(folder: Path, shards: dict[str, list[Tensor]], itemsize: int) -> None:
    places = {tensor.name: name for name, shard in shards.items() for tensor in shard}
    total = sum(_num_bytes(tensor, itemsize) for shard in shards.values() for tensor in shard)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n")
