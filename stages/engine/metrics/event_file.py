"""TensorBoard's event files: protocol buffers in records with checksums, of which scalars need a few fields only.

Fields are those of `Event`, `Summary` and `SessionLog` in TensorFlow's `event.proto` and `summary.proto`; a record is a
length, its masked CRC-32C, the message and the message's masked CRC-32C.
"""

import struct
import time
from collections.abc import Mapping
from pathlib import Path

import google_crc32c

_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
_VALUE = 1
_TAG, _SIMPLE_VALUE = 1, 2
_STATUS, _START = 1, 1
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
"""Wire types."""


class EventFile:
    """An event file that grows by one record for each step; readers may follow it while it is written."""

    def __init__(self, path: Path) -> None:
        """Create the file; raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._started = False
        self._write(_bytes(_FILE_VERSION, b"brain.Event:2"))

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add the scalars of a step by name.

        Before the first one stands a mark at which readers drop what earlier files say about this and later steps: an
        attempt goes on from a saved step, which another may have passed.
        """
        if not self._started:
            self._started = True
            self._write(_integer(_STEP, step) + _bytes(_SESSION_LOG, _integer(_STATUS, _START)))
        values = (_bytes(_VALUE, _scalar(name, value)) for name, value in numbers.items())
        self._write(_integer(_STEP, step) + _bytes(_SUMMARY, b"".join(values)))

    def close(self) -> None:
        self._file.close()

    def _write(self, fields: bytes) -> None:
        event = _key(_WALL_TIME, _DOUBLE) + struct.pack("<d", time.time()) + fields
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()


def _scalar(name: str, value: float) -> bytes:
    return _bytes(_TAG, name.encode()) + _key(_SIMPLE_VALUE, _FLOAT) + struct.pack("<f", value)


def _key(field: int, wire_type: int) -> bytes:
    return bytes([field << 3 | wire_type])


def _integer(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first; all but the last have the high bit set."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
