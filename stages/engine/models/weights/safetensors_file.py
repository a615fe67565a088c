"""Reads the safetensors container: names, types and places of tensors, whose bytes are mapped and not copied.

Format: a length of 8 bytes, so many bytes of JSON, then the tensors (the specification of the safetensors project).
"""

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
from jaxtyping import Float, UInt8
from pydantic import Field, TypeAdapter, ValidationError

from stages.contract import Strict
from stages.errors import UserError

DTYPES: Mapping[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""Types of weights that are read here."""

LENGTH_BYTES = 8
_Size = Annotated[int, Field(ge=0)]


class StoredTensor(Strict):
    """A tensor's entry in the header; its offsets count from the end of the header."""

    dtype: str
    shape: tuple[_Size, ...]
    data_offsets: tuple[_Size, _Size]


_HEADER = TypeAdapter(dict[str, StoredTensor | dict[str, str]])
"""Tensors by name, and free words under `__metadata__`."""


@dataclass(frozen=True)
class SafetensorsFile:
    """An open file: where it lies, its tensors by name, and its mapped bytes from the first tensor on."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    data: memoryview

    def raw(self, name: str) -> UInt8[np.ndarray, " bytes"]:
        """The bytes of a tensor, as a view of the file."""
        start, end = self.tensors[name].data_offsets
        return np.frombuffer(self.data[start:end], np.uint8)

    def rows(self, name: str, rows: slice) -> Float[np.ndarray, "..."]:
        """Some rows of a tensor of a type in `DTYPES`, as a view of the file."""
        tensor = self.tensors[name]
        return self.raw(name).view(DTYPES[tensor.dtype]).reshape(tensor.shape)[rows]


def open_safetensors(path: Path) -> SafetensorsFile:
    """Maps a file and reads its header.

    Raises:
        UserError: it is not in this format, or is cut off.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        if start > len(data):
            raise ValueError(f"its header ends at byte {start}, but the file is cut off at {len(data)}")
        header = _HEADER.validate_json(data[LENGTH_BYTES:start])
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValidationError, ValueError) as error:
        why = "its header is not understood" if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path}: not a readable safetensors file ({why}); download it again") from error
    tensors = {name: entry for name, entry in header.items() if isinstance(entry, StoredTensor)}
    _check_places(path, tensors, len(data) - start)
    return SafetensorsFile(path, tensors, memoryview(data)[start:])


def _check_places(path: Path, tensors: Mapping[str, StoredTensor], num_bytes: int) -> None:
    problems, expected, beyond = list[str](), 0, list[str]()
    for name, tensor in sorted(tensors.items(), key=lambda each: each[1].data_offsets):
        start, end = tensor.data_offsets
        if tensor.dtype in DTYPES and end - start != math.prod(tensor.shape) * DTYPES[tensor.dtype].itemsize:
            problems.append(f"tensor {name} has {end - start} bytes, which do not fit its shape {tensor.shape}")
        if start != expected:
            problems.append(f"tensor {name} starts at byte {start} of the tensors, expected {expected}")
        if end > num_bytes:
            beyond.append(name)
        expected = end
    if beyond:
        others = f", and so do {len(beyond) - 1} others" if beyond[1:] else ""
        problems.append(f"tensor {beyond[0]} ends after the file, which is cut off{others}")
    elif expected != num_bytes:
        problems.append(f"it goes on for {num_bytes - expected} bytes after its last tensor")
    if problems:
        raise UserError(f"{path}: not a readable safetensors file; download it again: " + "; ".join(problems))
