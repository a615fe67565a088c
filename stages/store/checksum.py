"""crc32c of bytes and files, as eight hexadecimal digits."""

from pathlib import Path

import google_crc32c

CHUNK_BYTES = 4 << 20


def bytes_crc32c(data: bytes) -> str:
    """Checksum of bytes in memory."""
    return f"{google_crc32c.value(data):08x}"


def file_crc32c(path: Path) -> str:
    """Checksum of a file's bytes; raises `OSError`."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc = google_crc32c.extend(crc, chunk)
    return f"{crc:08x}"
