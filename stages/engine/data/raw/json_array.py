"""Rows of one JSON array, which is never in memory as a whole."""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from stages.engine.data.raw.compressed import open_bytes
from stages.engine.data.raw.json_lines import object_row, read_json_lines
from stages.engine.data.raw.row import RawRow
from stages.errors import UserError

_CHUNK = 1 << 20
_LONGEST = 1 << 26
"""Characters of one row; what cannot be read in so many is taken to be broken."""
_SPACE = re.compile(r"[ \t\r\n]*")


def read_json(path: Path) -> Iterator[RawRow]:
    """The rows of a file that holds an array of objects, or JSON lines as many files of this name do.

    Raises:
        UserError: it is neither, or the array is broken.
        OSError: the file cannot be read or unpacked.
    """
    with open_bytes(path) as file:
        start = file.read(_CHUNK).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    match start:
        case b"[":
            return _read_array(path)
        case b"{":
            return read_json_lines(path)
        case _:
            raise UserError(f"{path}: expected an array of objects, or an object on each line")


def _read_array(path: Path) -> Iterator[RawRow]:
    with open_bytes(path) as file:
        text = _Text(path, codecs.getreader("utf-8-sig")(file))
        try:
            text.expect("[")
            if text.peek() == "]":
                return
            while True:
                line = text.line
                yield object_row(text.value(), f"{path}:{line}")
                if text.expect(",]") == "]":
                    return
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8: {error}") from error


class _Text:
    """A text of which only what was not read yet is held.

    Attributes:
        line: of the next character that is no space.
    """

    def __init__(self, path: Path, file: codecs.StreamReader) -> None:
        self._path = path
        self._file = file
        self._decoder = json.JSONDecoder(parse_constant=self._refuse)
        self._held = ""
        self._at = 0
        self.line = 1

    def peek(self) -> str:
        """The next character that is no space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._held, self._at)
            assert space is not None, "it matches nothing, too"
            self._advance(space.end())
            if self._at < len(self._held) or not self._more():
                return self._held[self._at : self._at + 1]

    def expect(self, choices: str) -> str:
        """Goes past one of these characters, and says which; what follows is then the next."""
        found = self.peek()
        if not found or found not in choices:
            wanted = " or ".join(f"`{choice}`" for choice in choices)
            raise UserError(f"{self._path}:{self.line}: expected {wanted}, not {found or 'the end of the file'}")
        self._advance(self._at + 1)
        self.peek()
        return found

    def value(self) -> object:
        """Goes past a value."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                if len(self._held) - self._at < _LONGEST and self._more():
                    continue
                line = self.line + self._held.count("\n", self._at, error.pos)
                raise UserError(f"{self._path}:{line}: Invalid JSON: {error.msg}") from error
            # A number that ends where the held text does may go on.
            if end < len(self._held) or not self._more():
                self._advance(end)
                return value

    def _advance(self, to: int) -> None:
        self.line += self._held.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        chunk = self._file.read(_CHUNK)
        self._held, self._at = self._held[self._at :] + chunk, 0
        return bool(chunk)

    def _refuse(self, constant: str) -> NoReturn:
        raise UserError(f"{self._path}:{self.line}: {constant} is no JSON")
