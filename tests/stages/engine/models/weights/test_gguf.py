"""Tensors and rows of a GGUF file."""

import struct
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from stages.engine.data.gguf import GgufFile, open_gguf
from stages.engine.models.weights.gguf import PIECE_VALUES, read_rows, read_tensor
from stages.errors import UserError

WriteGguf = Callable[..., Path]
F32, Q4_0, Q8_0, I32 = 0, 2, 8, 26


def counted(rows: int, width: int) -> tuple[bytes, np.ndarray]:
    """A tensor in Q8_0 whose blocks hold one value each, counted up."""
    num_blocks = rows * width // 32
    content = b"".join(struct.pack("<e", block % 1000) + bytes([1]) * 32 for block in range(num_blocks))
    return content, np.repeat(np.arange(num_blocks) % 1000, 32).reshape(rows, width).astype(np.float32)


@pytest.fixture
def file(write_gguf: WriteGguf) -> GgufFile:
    norm = np.arange(7, dtype="<f4")
    content, _ = counted(6, 64)
    tensors = {"norm": ((7,), F32, norm.tobytes()), "kernel": ((6, 64), Q8_0, content)}
    return open_gguf(write_gguf({}, tensors | {"experts": ((3, 2, 64), Q8_0, content)}))


def test_blocks_fill_a_tensor_row_by_row(file: GgufFile) -> None:
    _, kernel = counted(6, 64)
    np.testing.assert_array_equal(read_tensor(file, "kernel"), kernel)
    np.testing.assert_array_equal(read_tensor(file, "experts"), kernel.reshape(3, 2, 64))


@pytest.mark.parametrize("rows", [slice(1, 4), slice(0, 0), slice(4, None), slice(-2, 99)])
def test_rows_are_those_of_the_whole_tensor(file: GgufFile, rows: slice) -> None:
    for name in file.tensors:
        np.testing.assert_array_equal(read_rows(file, name, rows), read_tensor(file, name)[rows])


def test_rows_are_written_to_their_place_in_its_type_and_order(file: GgufFile) -> None:
    _, kernel = counted(6, 64)
    place = np.zeros((64, 8), ml_dtypes.bfloat16)
    assert read_rows(file, "kernel", slice(2, 6), place[:, 3:7].T).base is not None
    np.testing.assert_array_equal(place.astype(np.float32)[:, 3:7], kernel[2:].T)
    assert not place[:, :3].any()
    assert not place[:, 7:].any()


def test_the_rows_of_experts_are_written_transposed(file: GgufFile) -> None:
    place = np.zeros((3, 64, 2), np.float32)
    read_tensor(file, "experts", place.swapaxes(1, 2))
    np.testing.assert_array_equal(place.swapaxes(1, 2), read_tensor(file, "experts"))


def test_a_tensor_of_many_pieces_is_read_whole(write_gguf: WriteGguf) -> None:
    rows = 3 * PIECE_VALUES // 512 + 5
    content, expected = counted(rows, 512)
    file = open_gguf(write_gguf({}, {"t": ((rows, 512), Q8_0, content)}))
    np.testing.assert_array_equal(read_tensor(file, "t"), expected)
    place = np.empty((512, rows), np.float32)
    read_tensor(file, "t", place.T)
    np.testing.assert_array_equal(place.T, expected)


@pytest.mark.parametrize(
    ("kind", "words"), [(I32, "type I32"), (16, "type IQ2_XXS"), (99, "type 99, which is not known")]
)
def test_a_type_that_cannot_be_read_is_refused_with_those_that_can(
    write_gguf: WriteGguf, kind: int, words: str
) -> None:
    path = write_gguf({}, {"blk.0.attn_q.weight": ((1, 256), kind, bytes(1024))})
    with pytest.raises(UserError) as raised:
        read_tensor(open_gguf(path), "blk.0.attn_q.weight")
    assert str(raised.value).startswith(f"{path}: tensor blk.0.attn_q.weight is of {words}; supported are F64, F32")
