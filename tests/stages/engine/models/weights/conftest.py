"""GGUF files written by hand."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

Metadata = Mapping[str, str | int | float]
Tensors = Mapping[str, tuple[tuple[int, ...], int, bytes]]
"""Shape (outermost first), ggml's type number and bytes of each tensor."""


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _value(value: str | int | float) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<II", 4, value) if isinstance(value, int) else struct.pack("<If", 6, value)


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[[Metadata, Tensors], Path]:
    """Writes a file of version 3; each tensor starts at a multiple of 32 bytes."""

    def write(metadata: Metadata, tensors: Tensors) -> Path:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
        head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
        data = b""
        for name, (shape, kind, content) in tensors.items():
            sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            head += _text(name) + sizes + struct.pack("<IQ", kind, len(data))
            data += content + bytes(-len(content) % 32)
        path = tmp_path / "model.gguf"
        path.write_bytes(head + bytes(-len(head) % 32) + data)
        return path

    return write


@pytest.fixture
def as_float32() -> Callable[[np.ndarray], tuple[tuple[int, ...], int, bytes]]:
    """An array as a tensor that is not quantised."""
    return lambda array: (array.shape, 0, array.astype("<f4").tobytes())
