"""The GGUF container, written by hand."""

import struct
from pathlib import Path

import pytest

from stages.engine.data.gguf import GgufTensor, open_gguf
from stages.errors import UserError


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def container(version: int = 3) -> bytes:
    values = [
        text("general.name") + struct.pack("<I", 8) + text("tïny"),
        text("general.alignment") + struct.pack("<II", 4, 64),
        text("llama.rope.freq_base") + struct.pack("<If", 6, 1e5),
        text("tokenizer.ggml.add_bos_token") + struct.pack("<I?", 7, True),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("Ġb"),
        text("tokenizer.ggml.token_type") + struct.pack("<IIQ3i", 9, 5, 3, 1, -3, 4),
    ]
    tensor = text("output.weight") + struct.pack("<IQQIQ", 2, 32, 7, 0, 128)
    return b"GGUF" + struct.pack("<IQQ", version, 1, len(values)) + b"".join(values) + tensor


def test_metadata_and_places_of_tensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(container())
    file = open_gguf(path)
    assert file.metadata == {
        "general.name": "tïny",
        "general.alignment": 64,
        "llama.rope.freq_base": 1e5,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.tokens": ["a", "Ġb"],
        "tokenizer.ggml.token_type": [1, -3, 4],
    }
    start = -(-len(container()) // 64) * 64
    assert file.tensors == {"output.weight": GgufTensor(shape=(7, 32), quantization=0, offset=start + 128)}


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04" + bytes(100), container(version=1), b"GGUF", container()[:60], container()[:-4]]
)
def test_another_or_a_cut_off_file_is_an_error_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.gguf: not a readable GGUF file"):
        open_gguf(path)
