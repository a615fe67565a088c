"""Rows of one source on the local disk, without their ids; in memory is what they are chosen by."""

import os
from array import array
from pathlib import Path

import numpy as np
from jaxtyping import UInt32, UInt64

from stages.engine.data.records import Record
from stages.prepare.content import Content, Sameness, fingerprint

_NO_ID = {"id"}
_BETWEEN = b"\t"
"""Between a row and its place: JSON writes a tab in another way."""


class Spool:
    """Rows in the order of their source, which are added and then read by their number; 28 bytes of memory each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w+b")
        self._size = 0
        self._starts = array("q")
        self._prompts = array("Q")
        self._contents = array("Q")
        self._lengths = array("I")

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
        self._path.unlink()

    def add(self, record: Record, content: Content, place: str, sameness: Sameness) -> int:
        """Add a row; its fingerprint."""
        prompt = fingerprint(content.prompt, sameness)
        whole = prompt if content.all == content.prompt else fingerprint(content.all, sameness)
        line = b"%b\t%b\n" % (
            record.model_dump_json(exclude_defaults=True, exclude=_NO_ID).encode(),
            place.encode("utf-8", "surrogateescape"),
        )
        self._file.write(line)
        self._starts.append(self._size)
        self._size += len(line)
        self._prompts.append(prompt)
        self._contents.append(whole)
        self._lengths.append(content.num_characters)
        return whole

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def prompts(self) -> UInt64[np.ndarray, " rows"]:
        """Fingerprints of what the rows ask."""
        return np.array(self._prompts, np.uint64)

    @property
    def contents(self) -> UInt64[np.ndarray, " rows"]:
        """Fingerprints of all that is said."""
        return np.array(self._contents, np.uint64)

    @property
    def lengths(self) -> UInt32[np.ndarray, " rows"]:
        """Characters of each row."""
        return np.array(self._lengths, np.uint32)

    def row(self, number: int, row_id: str) -> bytes:
        """A row as JSON, with an id of this text, which needs no escape."""
        return b'{"id":"%b",%b' % (row_id.encode(), self._line(number).partition(_BETWEEN)[0][1:])

    def place(self, number: int) -> str:
        """Where the row stood."""
        return self._line(number).partition(_BETWEEN)[2].decode("utf-8", "surrogateescape").removesuffix("\n")

    def _line(self, number: int) -> bytes:
        self._file.flush()
        start = self._starts[number]
        stop = self._starts[number + 1] if number + 1 < len(self) else self._size
        return os.pread(self._file.fileno(), stop - start, start)
