"""What the JSON files beside a published tokenizer say about it, as far as it is used here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from stages.errors import UserError

CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE = "tokenizer_config.json", "generation_config.json", "chat_template.jinja"


class TokenEntry(BaseModel):
    """A token with the ways in which it is found in text, by the names of `tokenizers.AddedToken`."""

    content: str
    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class NamedTemplate(BaseModel):
    """One of several chat templates."""

    name: str
    template: str


class TokenizerConfig(BaseModel):
    """`tokenizer_config.json`.

    Attributes:
        bos_token: starts a sequence.
        eos_token: ends one, or a turn.
        pad_token: fills rows.
        add_bos_token: whether `bos_token` is put before every text.
        chat_template: Jinja source, of one template or of several.
        added_tokens_decoder: tokens beyond the vocabulary proper, and special ones within it, by id.
    """

    bos_token: str | TokenEntry | None = None
    eos_token: str | TokenEntry | None = None
    pad_token: str | TokenEntry | None = None
    add_bos_token: bool | None = None
    chat_template: str | Sequence[NamedTemplate] | None = None
    added_tokens_decoder: Mapping[int, TokenEntry] = Field(default_factory=dict)


TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class GenerationConfig(BaseModel):
    """`generation_config.json`: the tokens that end a response."""

    eos_token_id: TokenId | Sequence[TokenId] | None = None


Config = TypeVar("Config", TokenizerConfig, GenerationConfig)


def read_config(path: Path, kind: type[Config]) -> Config:
    """Reads one of the files.

    Raises:
        UserError: it is missing or not what it should be; the message names every wrong field.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error}") from error
    except ValidationError as error:
        wrong = (f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors())
        raise UserError(f"{path}: {'; '.join(part.removeprefix(': ') for part in wrong)}") from error


def token_text(token: str | TokenEntry | None) -> str | None:
    """A token is written as its text, or with more about it."""
    return token.content if isinstance(token, TokenEntry) else token


def chat_template(folder: Path, config: TokenizerConfig) -> str | None:
    """The template's own file comes first; of several templates the one named `default` is taken.

    Raises:
        UserError: the file cannot be read.
    """
    path = folder / TEMPLATE_FILE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: {error}") from error
    if config.chat_template is None or isinstance(config.chat_template, str):
        return config.chat_template
    return next((named.template for named in config.chat_template if named.name == "default"), None)
