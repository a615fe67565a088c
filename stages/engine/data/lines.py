"""Lines of a file by their number, read when they are asked for: only where they begin is held in memory."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from stages.store.io_errors import io_errors

_CHUNK = 1 << 23
_NEWLINE = ord("\n")


class Lines:
    """The lines of a file that stays as it is; eight bytes of memory each. Several threads may read them."""

    def __init__(self, path: Path) -> None:
        """Look for the ends of all lines.

        Raises:
            StorageError: the file cannot be read.
        """
        with io_errors("read", path):
            self._file = path.open("rb", buffering=0)
            self._bounds = _find_bounds(self._file.fileno())

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> bytes:
        """A line without the newline that ends it.

        Raises:
            IndexError: there is no such line.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"line {index} of {len(self)}")
        start, stop = self._bounds[index : index + 2].tolist()
        with io_errors("read", Path(self._file.name)):
            return os.pread(self._file.fileno(), stop - start, start).removesuffix(b"\n")

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))


def _find_bounds(descriptor: int) -> Int64[np.ndarray, " bounds"]:
    """Where each line begins, and the end of the file."""
    size = os.fstat(descriptor).st_size
    ends = [np.zeros(1, np.int64)]
    for start in range(0, size, _CHUNK):
        chunk = np.frombuffer(os.pread(descriptor, _CHUNK, start), np.uint8)
        ends.append(np.flatnonzero(chunk == _NEWLINE) + (start + 1))
    bounds = np.concatenate(ends)
    return bounds if bounds[-1] == size else np.append(bounds, size)
