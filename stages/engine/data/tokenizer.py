"""Text to token ids and back, as the model's own files define it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from pydantic import JsonValue
from tokenizers import AddedToken

from stages.engine.data.sentencepiece import sentencepiece_backend
from stages.engine.data.sentencepiece_file import read_sentencepiece
from stages.engine.data.tokenizer_kinds import start_with
from stages.errors import UserError

TOKENIZER_FILE, SENTENCEPIECE_FILE = "tokenizer.json", "tokenizer.model"
CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE = "tokenizer_config.json", "generation_config.json", "chat_template.jinja"

_Object = Mapping[str, JsonValue]


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary with its special tokens.

    Attributes:
        backend: ids and text without anything added.
        eos_ids: tokens that end a response, `eos_id` among them.
        eos_id: the model's own end-of-text or end-of-turn token.
        bos_token: text of the token that starts a sequence, empty when there is none; only chat templates use it.
        pad_token: text of the token that fills rows, empty when there is none; only programs that read our files do.
        chat_template: Jinja source, none for a model without one.
        origin: the file or folder that this was read from, for messages.
    """

    backend: tokenizers.Tokenizer
    eos_ids: frozenset[int]
    eos_id: int
    bos_token: str
    pad_token: str
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

    Reads `tokenizer.json` or, where there is none, SentencePiece's `tokenizer.model`; `tokenizer_config.json`, which
    only the latter can do without; and, where they exist, `generation_config.json` for further end tokens and
    `chat_template.jinja` for the template.

    Raises:
        UserError: a file is missing or not what it should be, or no end token is named.
    """
    config_path = folder / CONFIG_FILE
    if (folder / TOKENIZER_FILE).is_file():
        config = _read_object(config_path)
        backend, own_bos, own_eos = _load_backend(folder / TOKENIZER_FILE), None, None
    elif (folder / SENTENCEPIECE_FILE).is_file():
        config = _read_object(config_path) if config_path.is_file() else {}
        backend, own_bos, own_eos = _load_sentencepiece(folder, config)
    else:
        raise UserError(f"{folder}: no tokenizer; there is neither {TOKENIZER_FILE} nor {SENTENCEPIECE_FILE}")
    ends = _end_ids(backend, folder, _token_text(config.get("eos_token")) or own_eos)
    return Tokenizer(
        backend=backend,
        eos_ids=frozenset(ends),
        eos_id=ends[0],
        bos_token=_token_text(config.get("bos_token")) or own_bos or "",
        pad_token=_token_text(config.get("pad_token")) or "",
        chat_template=_find_template(folder, config),
        origin=str(folder),
    )


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    if not isinstance(_read_object(path).get("model"), Mapping):
        raise UserError(f"{path}: not a tokenizer: it has no model")
    try:
        backend = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: not a tokenizer that can be read: {error}") from error
    backend.no_padding()
    backend.no_truncation()
    return backend


def _load_sentencepiece(folder: Path, config: _Object) -> tuple[tokenizers.Tokenizer, str | None, str | None]:
    """The backend, and the start and end tokens that the model's file names by itself."""
    file = read_sentencepiece(folder / SENTENCEPIECE_FILE)
    backend = sentencepiece_backend(file.pieces)
    _add_tokens(backend, config, folder)
    bos, eos = (None if token_id is None else backend.id_to_token(token_id) for token_id in (file.bos_id, file.eos_id))
    if file.bos_id is not None and bos is not None and config.get("add_bos_token", True):
        start_with(backend, bos, file.bos_id)
    return backend, bos, eos


def _add_tokens(backend: tokenizers.Tokenizer, config: _Object, folder: Path) -> None:
    """Adds what `added_tokens_decoder` has beyond the SentencePiece model: object by id."""
    added = config.get("added_tokens_decoder")
    if not isinstance(added, Mapping):
        return
    for token_id, entry in sorted((int(token_id), entry) for token_id, entry in added.items()):
        text = _token_text(entry)
        if text is None or not isinstance(entry, Mapping) or backend.id_to_token(token_id) == text:
            continue
        special = entry.get("special") is True
        token = AddedToken(text, normalized=entry.get("normalized") is True, special=special)
        (backend.add_special_tokens if special else backend.add_tokens)([token])
        if backend.token_to_id(text) != token_id:
            raise UserError(
                f"{folder / CONFIG_FILE}: added_tokens_decoder gives {text!r} the id {token_id}, but the next free one "
                f"of {SENTENCEPIECE_FILE} is {backend.token_to_id(text)}"
            )


def _end_ids(backend: tokenizers.Tokenizer, folder: Path, eos_token: str | None) -> list[int]:
    """The tokenizer's own end token first."""
    ends = [] if eos_token is None else [_id_of(backend, eos_token, folder)]
    generation = folder / GENERATION_FILE
    if generation.is_file():
        ends += _id_list(_read_object(generation).get("eos_token_id"), generation)
    if not ends:
        raise UserError(f"{folder}: neither {CONFIG_FILE} nor {GENERATION_FILE} names an end token")
    return ends


def _read_object(path: Path) -> _Object:
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
        raise UserError(f"{folder}: the vocabulary has no {token!r}, which {CONFIG_FILE} names")
    return token_id


def _id_list(value: JsonValue, path: Path) -> list[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token_id, int) for token_id in ids):
        raise UserError(f"{path}: eos_token_id is {value!r}, expected an id or a list of ids")
    return [token_id for token_id in ids if isinstance(token_id, int)]


def _find_template(folder: Path, config: _Object) -> str | None:
    """The template's own file comes first; a list of named templates gives its `default`."""
    path = folder / TEMPLATE_FILE
    if path.is_file():
        return path.read_text(encoding="utf-8")
    value = config.get("chat_template")
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == "default":
            value = entry.get("template")
    return value if isinstance(value, str) else None
