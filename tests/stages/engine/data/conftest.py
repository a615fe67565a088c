"""The real model's GGUF metadata and a small tokenizer folder."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import real_models
import tokenizers
from pydantic import JsonValue
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from stages.engine.data.gguf import GgufValue, open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.tokenizer import Tokenizer

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def gguf_metadata() -> Mapping[str, GgufValue]:
    """Keys and values of the installed model's file."""
    return open_gguf(real_models.smollm2()).metadata


@pytest.fixture(scope="session")
def smollm2(gguf_metadata: Mapping[str, GgufValue]) -> Tokenizer:
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
