"""Text to token ids and back, as the model's own files define it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from pydantic import JsonValue

from stages.errors import UserError


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary with its special tokens.

    Attributes:
        backend: ids and text without anything added.
        eos_ids: tokens that end a response, `eos_id` among them.
        eos_id: the model's own end-of-text or end-of-turn token.
        bos_token: text of the token that starts a sequence, empty when there is none; only chat templates use it.
        chat_template: Jinja source, none for a model without one.
        origin: the file or folder that this was read from, for messages.
    """

    backend: tokenizers.Tokenizer
    eos_ids: frozenset[int]
    eos_id: int
    bos_token: str
    chat_template: str | None
    origin: str

    @property
    def eos_token(self) -> str:
        """Text of `eos_id`."""
        return self.backend.id_to_token(self.eos_id) or ""

    def encode(self, text: str) -> list[int]:
        """Ids of the text; a special token written out in it becomes its single id, and none is added."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of the ids, by default without special tokens."""
        return self.backend.decode(list(ids), skip_special_tokens=skip_special)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder in the layout of published models.

    Reads `tokenizer.json` and `tokenizer_config.json`, and, where they exist, `generation_config.json` for further end
    tokens and `chat_template.jinja` for the template.

    Raises:
        UserError: a file is missing or not what it should be, or no end token is named.
    """
    path = folder / "tokenizer.json"
    backend = _load_backend(path)
    config = _read_object(folder / "tokenizer_config.json")
    eos_token = _token_text(config.get("eos_token"))
    ends = [] if eos_token is None else [_id_of(backend, eos_token, folder)]
    generation = folder / "generation_config.json"
    if generation.is_file():
        ends += _id_list(_read_object(generation).get("eos_token_id"), generation)
    if not ends:
        raise UserError(f"{folder}: neither tokenizer_config.json nor generation_config.json names an end token")
    return Tokenizer(
        backend=backend,
        eos_ids=frozenset(ends),
        eos_id=ends[0],
        bos_token=_token_text(config.get("bos_token")) or "",
        chat_template=_find_template(folder, config),
        origin=str(folder),
    )


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    if not isinstance(_read_object(path).get("model"), Mapping):
        raise UserError(f"{path}: not a tokenizer: it has no model")
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.no_padding()
    backend.no_truncation()
    return backend


def _read_object(path: Path) -> Mapping[str, JsonValue]:
    try:
        value: JsonValue = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a JSON object")
    return value


def _token_text(value: JsonValue) -> str | None:
    """A token is written as its text, or as an object with the text in `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _id_of(backend: tokenizers.Tokenizer, token: str, folder: Path) -> int:
    token_id = backend.token_to_id(token)
    if token_id is None:
        raise UserError(f"{folder}: the vocabulary has no {token!r}, which tokenizer_config.json names")
    return token_id


def _id_list(value: JsonValue, path: Path) -> list[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token_id, int) for token_id in ids):
        raise UserError(f"{path}: eos_token_id is {value!r}, expected an id or a list of ids")
    return [token_id for token_id in ids if isinstance(token_id, int)]


def _find_template(folder: Path, config: Mapping[str, JsonValue]) -> str | None:
    """The template's own file comes first; a list of named templates gives its `default`."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    value = config.get("chat_template")
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == "default":
            value = entry.get("template")
    return value if isinstance(value, str) else None
