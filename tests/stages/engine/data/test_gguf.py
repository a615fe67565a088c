"""The GGUF container, written by hand, whole and damaged."""

import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.engine.data.gguf import GgufTensor, open_gguf
from stages.errors import UserError

F32, Q4_0, UNKNOWN = 0, 2, 99
UINT32, TEXT, ARRAY = 4, 8, 9


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def number(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", UINT32, value)


def texts(key: str, items: Sequence[str | bytes]) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, TEXT, len(items)) + b"".join(map(text, items))


def tensor(name: str, offset: int = 0, sizes: tuple[int, ...] = (4, 2), kind: int = F32) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


VALUES = [
    text("general.name") + struct.pack("<I", TEXT) + text("tïny"),
    number("general.alignment", 64),
    text("llama.rope.freq_base") + struct.pack("<If", 6, 1e5),
    text("tokenizer.ggml.add_bos_token") + struct.pack("<I?", 7, True),
    texts("tokenizer.ggml.tokens", ["a", "Ġb"]),
    text("tokenizer.ggml.token_type") + struct.pack("<IIQ3i", ARRAY, 5, 3, 1, -3, 4),
]


def container(
    values: Sequence[bytes] = VALUES, tensors: Sequence[bytes] = (tensor("output.weight", 128),), version: int = 3
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join([*values, *tensors])
    return head + bytes(-len(head) % 64) + bytes(128 + 32)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_places_of_tensors_are_read(tmp_path: Path, version: int) -> None:
    content = container(version=version)
    file = open_gguf(write(tmp_path, content))
    assert file.metadata == {
        "general.name": "tïny",
        "general.alignment": 64,
        "llama.rope.freq_base": 1e5,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.tokens": ["a", "Ġb"],
        "tokenizer.ggml.token_type": [1, -3, 4],
    }
    place = GgufTensor(shape=(2, 4), quantization=F32, offset=len(content) - 32)
    assert file.tensors == {"output.weight": place}


def test_texts_may_be_empty_long_hold_zeros_and_be_no_text(tmp_path: Path) -> None:
    items = ["", "x" * 70_000, "a\0b", b"\xe2\x96", "▁"]
    file = open_gguf(write(tmp_path, container([texts("tokens", items)], [])))
    assert file.metadata["tokens"] == ["", "x" * 70_000, "a\0b", "�", "▁"]


def test_a_type_of_tensor_that_is_not_known_does_not_keep_the_metadata_from_being_read(tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path, container(tensors=[tensor("x", kind=UNKNOWN)])))
    assert file.tensors["x"].quantization == UNKNOWN


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(100), b"GGUF"])
def test_another_file_is_an_error_with_its_name(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"model\.gguf: not a readable GGUF file"):
        open_gguf(write(tmp_path, content))


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_what_is_no_file_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"cannot be read: (No such file|Is a directory)"):
        open_gguf(tmp_path / name)


def test_a_file_cut_off_at_any_byte_is_an_error_with_its_name(tmp_path: Path) -> None:
    content = container()
    for end in range(len(content)):
        with pytest.raises(UserError, match=r"model\.gguf: not a readable GGUF file"):
            open_gguf(write(tmp_path, content[:end]))


@settings(max_examples=200)
@given(damage=st.dictionaries(st.integers(0, len(container()) - 1), st.integers(0, 255), min_size=1, max_size=4))
def test_damage_is_an_error_or_other_values_and_takes_no_memory(
    tmp_path_factory: pytest.TempPathFactory, damage: dict[int, int]
) -> None:
    content = bytearray(container())
    for at, value in damage.items():
        content[at] = value
    path = write(tmp_path_factory.getbasetemp(), bytes(content))
    tracemalloc.start()
    try:
        open_gguf(path)
    except UserError as error:
        assert str(error).startswith(f"{path}: not a readable GGUF file")  # noqa: PT017
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1 << 20


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (container(version=1), "it has version 1, expected 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "it is big-endian, expected little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0), f"{HUGE} tensors at byte 16 are more than it can hold"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE), f"{HUGE} values at byte 24 are more than it can hold"),
        (container([text("k") + struct.pack("<IIQ", ARRAY, UINT32, HUGE)]), f"{HUGE} values at byte"),
        (container([text("k") + struct.pack("<IIQ", ARRAY, TEXT, HUGE)]), f"{HUGE} texts at byte"),
        (container([text("k") + struct.pack("<IIQQ", ARRAY, TEXT, 1, HUGE)]), f"a text of {HUGE} bytes at byte"),
        (container([text("k") + struct.pack("<IQ", TEXT, HUGE)]), f"a text of {HUGE} bytes at byte"),
        (container([text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1)]), "a value of type 9, which GGUF does not have"),
        (container([text("k") + struct.pack("<I", 13)]), "a value of type 13, which GGUF does not have"),
        (container([number("k", 1), number("k", 1)]), "it holds the key k twice"),
        (container([number("general.alignment", 48)]), "general.alignment is 48, expected a power of two"),
        (container([number("general.alignment", 0)]), "general.alignment is 0, expected a power of two"),
        (container(tensors=[tensor("x"), tensor("x", 64)]), "it holds the tensor x twice"),
        (container(tensors=[tensor("x", 32)]), "tensor x starts at 32, no multiple of 64"),
        (container(tensors=[tensor("x", sizes=(1,) * 5)]), "tensor x has 5 dimensions, expected 1 to 4"),
        (container(tensors=[tensor("x", sizes=())]), "tensor x has 0 dimensions, expected 1 to 4"),
    ],
)
def test_what_no_file_holds_is_refused_in_words(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UserError) as raised:
        open_gguf(write(tmp_path, content))
    assert message in str(raised.value)


def test_all_tensors_without_a_place_are_named_at_once(tmp_path: Path) -> None:
    tensors = [
        tensor("a", 0, (32,)),
        tensor("b", 64),
        tensor("c", 128, (33,), Q4_0),
        *(tensor(name, HUGE) for name in "de"),
    ]
    content = container(tensors=tensors)
    with pytest.raises(UserError) as raised:
        open_gguf(write(tmp_path, content))
    for message in (
        "tensors a and b overlap",
        "tensor c has rows of 33 values, no multiple of Q4_0's 32",
        "tensors d and e overlap",
        f"cut off at byte {len(content)}: tensor d ends at {HUGE + len(content) - 160 + 32}; 2 in all are not whole",
    ):
        assert message in str(raised.value)
