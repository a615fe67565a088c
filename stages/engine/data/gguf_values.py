"""The typed values of a GGUF header, read one after another from bytes that may be cut off or damaged."""

import mmap
import struct

import numpy as np

GgufValue = int | float | bool | str | list[int] | list[float] | list[bool] | list[str]

STRING, ARRAY = 8, 9
SCALARS = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
MAX_ITEMS = 1 << 22
"""Of an array or a table: eight times the largest list of merges, so that a larger count is damage."""
MAX_TEXT_BYTES = 1 << 26

_NUMBER, _COUNT = struct.Struct("<I"), struct.Struct("<Q")


class Cursor:
    """Reads values and moves on.

    Every method raises ValueError where the bytes end too early or hold what no file does.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        """Four bytes without a sign."""
        return self._unpack(_NUMBER)

    def count(self) -> int:
        """Eight bytes without a sign."""
        return self._unpack(_COUNT)

    def num_items(self, what: str, item_bytes: int) -> int:
        """A count of items that take at least so many bytes each and lie behind it."""
        size = self.count()
        if size > MAX_ITEMS or size * item_bytes > len(self.data) - self.at:
            raise ValueError(f"{size} {what} at byte {self.at} are more than it can hold")
        return size

    def text(self) -> str:
        """UTF-8 behind the count of its bytes; what is no UTF-8 becomes U+FFFD."""
        size = self.count()
        if size > min(MAX_TEXT_BYTES, len(self.data) - self.at):
            raise ValueError(f"a text of {size} bytes at byte {self.at} is longer than it can be")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8", errors="replace")

    def value(self) -> GgufValue:
        """A value behind the number of its type."""
        kind = self.number()
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self._array()
        dtype = _scalar(kind)
        if dtype.itemsize > len(self.data) - self.at:
            raise ValueError(f"it ends within a value at byte {self.at}")
        self.at += dtype.itemsize
        return np.frombuffer(self.data, dtype, 1, self.at - dtype.itemsize)[0].item()

    def _array(self) -> GgufValue:
        kind = self.number()
        if kind == STRING:
            return self._texts(self.num_items("texts", _COUNT.size))
        dtype = _scalar(kind)
        size = self.num_items("values", dtype.itemsize)
        self.at += dtype.itemsize * size
        return np.frombuffer(self.data, dtype, size, self.at - dtype.itemsize * size).tolist()

    def _texts(self, size: int) -> list[str]:
        """A vocabulary has hundreds of thousands, so this loop does no more than it must."""
        data, at, unpack, texts = self.data, self.at, _COUNT.unpack_from, list[str]()
        try:
            for _ in range(size):
                num_bytes = unpack(data, at)[0]
                if num_bytes > MAX_TEXT_BYTES:
                    raise ValueError(f"a text of {num_bytes} bytes at byte {at} is longer than it can be")
                start = at + 8
                at = start + num_bytes
                texts.append(data[start:at].decode("utf-8", "replace"))
        except struct.error as error:
            raise ValueError(f"it ends within {size} texts at byte {self.at}") from error
        if at > len(data):
            raise ValueError(f"it ends within {size} texts at byte {self.at}")
        self.at = at
        return texts

    def _unpack(self, form: struct.Struct) -> int:
        if form.size > len(self.data) - self.at:
            raise ValueError(f"it ends within a number at byte {self.at}")
        self.at += form.size
        return form.unpack_from(self.data, self.at - form.size)[0]


def _scalar(kind: int) -> np.dtype:
    dtype = SCALARS.get(kind)
    if dtype is None:
        raise ValueError(f"it holds a value of type {kind}, which GGUF does not have")
    return dtype
