"""Writes a tokenizer as published models have it, for `load_tokenizer` and for other programs."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from stages.engine.data.tokenizer import TOKENIZER_FILE, Tokenizer
from stages.engine.data.tokenizer_config import CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE


def save_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Writes `tokenizer.json`, its settings, the end tokens of generation, and the template where there is one.

    Equal tokenizers give equal bytes. The class is the one that takes `tokenizer.json` as it is: those named after
    models build their own from its parts.
    """
    tokens = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token, "pad_token": tokenizer.pad_token}
    named: dict[str, JsonValue] = {name: token for name, token in tokens.items() if token}
    ends: list[JsonValue] = [tokenizer.eos_id, *sorted(tokenizer.eos_ids - {tokenizer.eos_id})]
    ids: dict[str, JsonValue] = {
        f"{name}_id": tokenizer.backend.token_to_id(token) for name, token in tokens.items() if token
    }
    tokenizer.backend.save(str(folder / TOKENIZER_FILE))
    _write(
        folder / CONFIG_FILE,
        {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named},
    )
    _write(folder / GENERATION_FILE, {**ids, "eos_token_id": ends})
    if tokenizer.chat_template is not None:
        (folder / TEMPLATE_FILE).write_text(tokenizer.chat_template, encoding="utf-8")


def _write(path: Path, value: Mapping[str, JsonValue]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n", encoding="utf-8")
