"""Errors of the operating system, as errors that say what to do."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stages.errors import StorageError

REMEDIES = {
    errno.ENOSPC: "free some space, or use a store on another disk",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: "give this user the right to write there",
    errno.EROFS: "mount it writable, or use a store on another disk",
    errno.ENOTDIR: "a file stands where a folder is needed; move it away",
}

FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full_disk(error: BaseException) -> bool:
    """Whether somebody had no room to write; libraries in other languages tell it in their text only."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return any(os.strerror(number) in str(error) for number in FULL)


@contextmanager
def io_errors(action: str, path: Path) -> Generator[None]:
    """Turns an `OSError` into a `StorageError` that says what was done, where, why it failed and what to do."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "check the disk, then run again")
        raise StorageError(f"cannot {action} {path}: {error.strerror or error}; {remedy}") from error
