"""The container: written by the package of its project, read here, and damaged in every way."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from stages.engine.models.weights.safetensors_file import open_safetensors
from stages.errors import UserError

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(8, dtype=np.float64).reshape(2, 2, 2),
    "c": np.array([1.5, -2.0], np.float16),
    "d": np.array([[3.0], [4.0], [5.0]], ml_dtypes.bfloat16),
}
CONTENT = save(TENSORS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("file") / "model.safetensors"


def with_header(change: dict[str, object], *, spaces: int = 0) -> bytes:
    length = int.from_bytes(CONTENT[:8], "little")
    header = json.dumps(json.loads(CONTENT[8 : 8 + length]) | change).encode() + b" " * spaces
    return len(header).to_bytes(8, "little") + header + CONTENT[8 + length :]


@pytest.mark.parametrize("spaces", range(3))
def test_rows_are_those_that_were_written_wherever_the_header_ends(path: Path, spaces: int) -> None:
    path.write_bytes(with_header({}, spaces=spaces))
    file = open_safetensors(path)
    for name, values in TENSORS.items():
        assert file.tensors[name].shape == values.shape
        for rows in (slice(None), slice(1, 2)):
            found = file.rows(name, rows)
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values[rows])


def test_a_file_that_is_cut_off_anywhere_is_refused_by_name(path: Path) -> None:
    for length in range(len(CONTENT)):
        path.write_bytes(CONTENT[:length])
        with pytest.raises(UserError, match=str(path)):
            open_safetensors(path)


@given(at=st.integers(0, len(CONTENT) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_leaves_every_place_within_the_file(path: Path, at: int, byte: int) -> None:
    path.write_bytes(CONTENT[:at] + bytes([byte]) + CONTENT[at + 1 :])
    try:
        file = open_safetensors(path)
    except UserError:
        return
    lengths = {name: end - start for name, tensor in file.tensors.items() for start, end in (tensor.data_offsets,)}
    assert {name: len(file.raw(name)) for name in file.tensors} == lengths


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            with_header({"c": {"dtype": "F16", "shape": [3], "data_offsets": [94, 98]}}),
            "tensor c has 4 bytes, which do not fit its shape",
        ),
        (
            with_header({"e": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2]}}),
            "tensor b starts at byte 0 of the tensors, expected 2",
        ),
        (CONTENT + b"more", "it goes on for 4 bytes after its last tensor"),
        (CONTENT[:-7], "tensor d ends after the file, which is cut off, and so do 1 others"),
        (b"", "cannot mmap an empty file"),
    ],
)
def test_what_is_wrong_is_told(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        open_safetensors(path)
