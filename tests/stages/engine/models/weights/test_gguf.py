"""Quantised tensors, block by block."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stages.engine.data.gguf import open_gguf
from stages.engine.models.weights.gguf import read_tensor
from stages.errors import UserError

WriteGguf = Callable[..., Path]
NIBBLES = bytes(low | (15 - low) << 4 for low in range(16))
"""Values 0 to 15, then 15 to 0: the low halves come first."""
SIGNED = np.arange(-16, 16, dtype=np.int8) * 8


def read(path: Path, name: str = "t") -> np.ndarray:
    return read_tensor(open_gguf(path), name)


def test_floats_of_four_and_of_two_bytes_are_taken_as_they_are(write_gguf: WriteGguf) -> None:
    values = np.array([[1.5, -2.0, 0.1], [3e4, -0.0, 6e-5]], np.float32)
    path = write_gguf({}, {"t": ((2, 3), 0, values.tobytes()), "half": ((2, 3), 1, values.astype("<f2").tobytes())})
    np.testing.assert_array_equal(read(path), values)
    np.testing.assert_array_equal(read(path, "half"), values.astype(np.float16).astype(np.float32))


def test_q4_1_is_scale_times_nibble_plus_minimum(write_gguf: WriteGguf) -> None:
    blocks = struct.pack("<ee", 0.5, -3.0) + NIBBLES + struct.pack("<ee", 2.0, 0.25) + NIBBLES
    tensor = read(write_gguf({}, {"t": ((2, 32), 3, blocks)}))
    nibbles = np.array([*range(16), *reversed(range(16))], np.float32)
    np.testing.assert_array_equal(tensor, [nibbles * 0.5 - 3.0, nibbles * 2.0 + 0.25])
    assert tensor.dtype == np.float32


def test_q8_0_is_scale_times_signed_byte(write_gguf: WriteGguf) -> None:
    blocks = struct.pack("<e", 0.25) + SIGNED.tobytes() + struct.pack("<e", -1.0) + SIGNED[::-1].tobytes()
    tensor = read(write_gguf({}, {"t": ((1, 64), 8, blocks)}))
    np.testing.assert_array_equal(tensor, [[*(SIGNED * 0.25), *(SIGNED[::-1] * -1.0)]])
    assert tensor.dtype == np.float32


def test_blocks_fill_a_tensor_row_by_row(write_gguf: WriteGguf) -> None:
    blocks = b"".join(struct.pack("<e", scale) + bytes([1]) * 32 for scale in range(6))
    tensor = read(write_gguf({}, {"t": ((3, 64), 8, blocks)}))
    assert tensor[:, ::32].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_an_unknown_quantisation_is_refused_with_its_number(write_gguf: WriteGguf) -> None:
    path = write_gguf({}, {"blk.0.attn_q.weight": ((1, 32), 2, bytes(18))})
    with pytest.raises(UserError, match=r"blk\.0\.attn_q\.weight: GGUF quantisation type 2 is not supported"):
        read(path, "blk.0.attn_q.weight")


def test_a_tensor_that_reaches_past_the_end_of_the_file_is_refused(write_gguf: WriteGguf) -> None:
    path = write_gguf({}, {"t": ((4, 32), 8, bytes(4 * 34))})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match="it is cut off"):
        read(path)
