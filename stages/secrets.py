"""Secrets by name: looked up where they are used, and masked in what a process prints."""

import atexit
import codecs
import io
import json
import logging
import os
import re
import sys
import threading
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

    What goes through `sys.stdout`, `sys.stderr` and the handlers of the root logger is masked, also where a secret
    comes in several writes: what may be the start of one is held back until more comes or the process exits. What
    native code or another program writes is not masked. Call it before anything is imported that reads the environment.

    Raises:
        UserError: a secret is not known.
    """
    values = {name: resolve_secret(reference) for name, reference in variables.items()}
    os.environ.update(values)
    hide = hider(values.values())
    if values:
        sys.stdout, sys.stderr = _masked(sys.stdout, values.values()), _masked(sys.stderr, values.values())
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(sys.stderr)
    return hide


def hider(secrets: Iterable[str]) -> Hide:
    """Masks these values."""
    parts = _parts(secrets)
    if not parts:
        return lambda text: text
    pattern = _any_of(parts)
    return lambda text: pattern.sub(MASK, text)


def _parts(secrets: Iterable[str]) -> set[str]:
    return {part for secret in secrets for part in (secret, *_as_shown(secret), *_long_lines(secret)) if part}


def _any_of(parts: Iterable[str]) -> re.Pattern[str]:
    """The longest first, so that one that holds another leaves no rest."""
    return re.compile("|".join(map(re.escape, sorted(parts, key=len, reverse=True))))


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


class MaskedPieces:
    """Masks in a text that comes in pieces as in the whole, and holds back what may be the start of a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = _parts(secrets)
        self._pattern = _any_of(parts)
        self._longest = max(map(len, parts))
        self._by_start = {part[0]: [other for other in parts if other[0] == part[0]] for part in parts}
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._held = ""

    def mask(self, piece: bytes) -> bytes:
        """What can be shown by now."""
        text = self._held + self._decoder.decode(piece)
        end = self._settled(text)
        self._held = text[end:]
        return self._masked(text[:end])

    def rest(self) -> bytes:
        """What was held back; nothing comes after it."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return self._masked(text)

    def _masked(self, text: str) -> bytes:
        return self._pattern.sub(MASK, text).encode(errors="surrogateescape")

    def _settled(self, text: str) -> int:
        """How much of the text is masked the same whatever comes: up to where a secret may begin that is not over."""
        place = max(0, len(text) - self._longest + 1)
        for found in self._pattern.finditer(text):
            for start in range(place, found.start() + 1):
                if self._may_begin(text[start:]):
                    return start
            place = max(place, found.end())
        return next((start for start in range(place, len(text)) if self._may_begin(text[start:])), len(text))

    def _may_begin(self, tail: str) -> bool:
        return any(len(part) > len(tail) and part.startswith(tail) for part in self._by_start.get(tail[0], ()))


class _MaskedBytes(io.RawIOBase):
    """Masks in what is written to a binary stream; safe to use from several threads."""

    def __init__(self, stream: TextIO, secrets: Iterable[str]) -> None:
        self.name = stream.name
        self._stream = stream
        self._pieces = MaskedPieces(secrets)
        self._lock = threading.RLock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        with self._lock:
            self._show(self._pieces.mask(bytes(data)))
        return len(data)

    def show_rest(self) -> None:
        with self._lock:
            self._show(self._pieces.rest())

    def _show(self, masked: bytes) -> None:
        self._stream.buffer.write(masked)
        self._stream.buffer.flush()


def _masked(stream: TextIO, secrets: Iterable[str]) -> TextIO:
    """A text stream like `stream`, also for those who write bytes to it."""
    stream.flush()
    masked = _MaskedBytes(stream, secrets)
    atexit.register(masked.show_rest)
    return io.TextIOWrapper(masked, stream.encoding, stream.errors, write_through=True)
