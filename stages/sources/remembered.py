"""sha256 of local files, remembered in the user's cache while a file's identity on disk stays the same."""

import contextlib
import hashlib
import os
import time
import uuid
from pathlib import Path

from pydantic import ValidationError

from stages.contract import Strict
from stages.errors import StorageError
from stages.store.io_errors import io_errors

# A file system's clock may stand still for this long: a younger file may change without a trace.
SETTLED_SECONDS = 2.0


class _Remembered(Strict):
    device: int
    inode: int
    size: int
    mtime_ns: int
    sha256: str


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "temper" / "digests"


def _identity(path: Path) -> tuple[int, int, int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def file_sha256(path: Path) -> str:
    """Digest of a file's bytes as 64 hexadecimal digits.

    Raises:
        StorageError: it cannot be read, or changed meanwhile.
    """
    with io_errors("read", path):
        identity = _identity(path)
        entry = _cache_folder() / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()}.json"
        known = _recall(entry)
        if known is not None and (known.device, known.inode, known.size, known.mtime_ns) == identity:
            return known.sha256
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if _identity(path) != identity:
            raise StorageError(f"{path}: changed while it was read; run again when it is complete")
    if time.time_ns() - identity[3] > SETTLED_SECONDS * 1e9:
        device, inode, size, mtime_ns = identity
        _remember(entry, _Remembered(device=device, inode=inode, size=size, mtime_ns=mtime_ns, sha256=digest))
    return digest


def _recall(entry: Path) -> _Remembered | None:
    try:
        return _Remembered.model_validate_json(entry.read_text())
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def _remember(entry: Path, record: _Remembered) -> None:
    """Best effort: without a cache, files are read again each time."""
    partial = entry.with_suffix(f".{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(record.model_dump_json())
        partial.replace(entry)
