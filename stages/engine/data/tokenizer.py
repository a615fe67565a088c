"""Text to token ids and back, as the model's own files define it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from stages.engine.data.sentencepiece import sentencepiece_backend
from stages.engine.data.sentencepiece_file import read_sentencepiece
from stages.engine.data.tokenizer_config import (
    CONFIG_FILE,
    GENERATION_FILE,
    GenerationConfig,
    TokenizerConfig,
    chat_template,
    read_config,
    token_text,
)
from stages.engine.data.tokenizer_kinds import start_with
from stages.errors import UserError

TOKENIZER_FILE, SENTENCEPIECE_FILE = "tokenizer.json", "tokenizer.model"


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

    @cached_property
    def num_ids(self) -> int:
        """One more than the largest id of a token."""
        return max(self.backend.get_vocab().values()) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are no text, as those that open and end a turn."""
        return frozenset(token for token, added in self.backend.get_added_tokens_decoder().items() if added.special)

    @cached_property
    def literal_backend(self) -> tokenizers.Tokenizer:
        """The backend, for which special tokens written out in a text are only words."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        return backend

    def encode(self, text: str) -> list[int]:
        """Ids of the text; a special token written out in it becomes its single id, and none is added."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, as `encode`, on all cores."""
        return [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]

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
        config = read_config(config_path, TokenizerConfig)
        backend, own_bos, own_eos = _load_backend(folder / TOKENIZER_FILE), None, None
    elif (folder / SENTENCEPIECE_FILE).is_file():
        config = read_config(config_path, TokenizerConfig) if config_path.is_file() else TokenizerConfig()
        backend, own_bos, own_eos = _load_sentencepiece(folder, config)
    else:
        raise UserError(f"{folder}: no tokenizer; there is neither {TOKENIZER_FILE} nor {SENTENCEPIECE_FILE}")
    ends = _end_ids(backend, folder, token_text(config.eos_token) or own_eos)
    return Tokenizer(
        backend=backend,
        eos_ids=frozenset(ends),
        eos_id=ends[0],
        bos_token=token_text(config.bos_token) or own_bos or "",
        pad_token=token_text(config.pad_token) or "",
        chat_template=chat_template(folder, config),
        origin=str(folder),
    )


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    try:
        backend = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable tokenizer: {error}") from error
    backend.no_padding()
    backend.no_truncation()
    return backend


def _load_sentencepiece(folder: Path, config: TokenizerConfig) -> tuple[tokenizers.Tokenizer, str | None, str | None]:
    """The backend, and the start and end tokens that the model's file names by itself."""
    file = read_sentencepiece(folder / SENTENCEPIECE_FILE)
    backend = sentencepiece_backend(file.pieces)
    _add_tokens(backend, config, folder)
    bos, eos = (None if token_id is None else backend.id_to_token(token_id) for token_id in (file.bos_id, file.eos_id))
    if file.bos_id is not None and bos is not None and config.add_bos_token is not False:
        start_with(backend, bos, file.bos_id)
    return backend, bos, eos


def _add_tokens(backend: tokenizers.Tokenizer, config: TokenizerConfig, folder: Path) -> None:
    """Adds what the settings have beyond the SentencePiece model."""
    for token_id, entry in sorted(config.added_tokens_decoder.items()):
        if backend.id_to_token(token_id) == entry.content:
            continue
        flags = entry.model_dump(exclude={"content"})
        (backend.add_special_tokens if entry.special else backend.add_tokens)([AddedToken(entry.content, **flags)])
        if backend.token_to_id(entry.content) != token_id:
            raise UserError(
                f"{folder / CONFIG_FILE}: added_tokens_decoder gives {entry.content!r} the id {token_id}, but it gets "
                f"{backend.token_to_id(entry.content)} after the pieces of {SENTENCEPIECE_FILE}"
            )


def _end_ids(backend: tokenizers.Tokenizer, folder: Path, eos_token: str | None) -> list[int]:
    """The tokenizer's own end token first."""
    ends = [] if eos_token is None else [_id_of(backend, eos_token, folder)]
    generation = folder / GENERATION_FILE
    if generation.is_file():
        more = read_config(generation, GenerationConfig).eos_token_id
        ends += [] if more is None else [more] if isinstance(more, int) else more
        if unknown := [token_id for token_id in ends if backend.id_to_token(token_id) is None]:
            raise UserError(f"{generation}: eos_token_id: the vocabulary has no token {unknown[0]}")
    if not ends:
        raise UserError(f"{folder}: neither {CONFIG_FILE} nor {GENERATION_FILE} names an end token")
    return ends


def _id_of(backend: tokenizers.Tokenizer, token: str, folder: Path) -> int:
    token_id = backend.token_to_id(token)
    if token_id is None:
        raise UserError(f"{folder}: the vocabulary has no {token!r}, which {CONFIG_FILE} names")
    return token_id
