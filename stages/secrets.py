"""Secrets by name: looked up where they are used, and masked in what a process prints."""

import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TextIO

from stages.errors import UserError

SCHEME = "secret://"
REFERENCE = re.compile(r"secret://([A-Za-z0-9][A-Za-z0-9_.-]*)")
MASK = "***"
MASKED_LINE_CHARACTERS = 8
"""A line of a secret of several lines is masked by itself if it is at least so long: logs are read by lines."""

Hide = Callable[[str], str]
"""Masks every known secret in a text."""


def is_secret(value: str) -> bool:
    """Whether a value only says which secret it stands for."""
    return value.startswith(SCHEME)


def resolve_secret(reference: str) -> str:
    """The value of `secret://name`.

    It is the environment variable `TEMPER_SECRET_NAME`, in capitals and with `_` for `-` and `.`, or else the file
    `name` in the folder `TEMPER_SECRETS_DIR` or in `/run/secrets`, without the line end after it.

    Raises:
        UserError: it is not a secret's name, or it is nowhere or empty.
    """
    found = REFERENCE.fullmatch(reference)
    if found is None:
        raise UserError(f"'{reference}' is no secret: expected {SCHEME}NAME with letters, digits, '-', '_' and '.'")
    name = found[1]
    variable = f"TEMPER_SECRET_{re.sub('[-.]', '_', name.upper())}"
    files = [folder / name for folder in _folders()]
    for value in (os.environ.get(variable), *map(_read, files)):
        if value:
            return value
    places = " or ".join(["the environment variable " + variable, *(f"the file {file}" for file in files)])
    raise UserError(f"the secret '{name}' is not known here: put it into {places}")


def set_secrets(variables: Mapping[str, str]) -> Hide:
    """Sets environment variables to the secrets that they name, and masks those in what this process prints.

    What goes through `sys.stdout`, `sys.stderr` and the handlers of the root logger is masked; what native code or
    another program writes is not. Call it before anything is imported that reads the environment.

    Raises:
        UserError: a secret is not known.
    """
    values = {name: resolve_secret(reference) for name, reference in variables.items()}
    os.environ.update(values)
    hide = hider(values.values())
    if values:
        sys.stdout, sys.stderr = _masked(sys.stdout, hide), _masked(sys.stderr, hide)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(sys.stderr)
    return hide


def hider(secrets: Iterable[str]) -> Hide:
    """Masks these values; the longest first, so that one that holds another leaves no rest."""
    parts = {part for secret in secrets for part in (secret, *_as_shown(secret), *_long_lines(secret)) if part}
    if not parts:
        return lambda text: text
    pattern = re.compile("|".join(map(re.escape, sorted(parts, key=len, reverse=True))))
    return lambda text: pattern.sub(MASK, text)


def _as_shown(secret: str) -> tuple[str, ...]:
    """Without the space around it, and as messages quote it: by `repr`, and in JSON."""
    return secret.strip(), repr(secret)[1:-1], json.dumps(secret)[1:-1]


def _long_lines(secret: str) -> list[str]:
    return [line for line in secret.splitlines() if len(line) >= MASKED_LINE_CHARACTERS]


def _folders() -> list[Path]:
    own = os.environ.get("TEMPER_SECRETS_DIR", "")
    return [*([Path(own)] if own else []), Path("/run/secrets")]


def _read(file: Path) -> str | None:
    try:
        return file.read_text().rstrip("\r\n")
    except OSError:
        return None


class _MaskedBytes(io.RawIOBase):
    """Masks in what is written to a binary stream, write by write."""

    def __init__(self, stream: TextIO, hide: Hide) -> None:
        self.name = stream.name
        self._stream = stream
        self._hide = hide

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        text = bytes(data).decode(errors="surrogateescape")
        self._stream.buffer.write(self._hide(text).encode(errors="surrogateescape"))
        self._stream.buffer.flush()
        return len(data)


def _masked(stream: TextIO, hide: Hide) -> TextIO:
    """A text stream like `stream`, also for those who write bytes to it."""
    stream.flush()
    return io.TextIOWrapper(_MaskedBytes(stream, hide), stream.encoding, stream.errors, write_through=True)
