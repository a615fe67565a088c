"""The folder of a Prefect server's database, held by one process at a time."""

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

from stages.errors import TemperError
from stages.store.io_errors import io_errors

POLL_SECONDS = 0.05


class HomeTakenError(TemperError):
    """Another server has the folder; the message names it."""


@dataclass(frozen=True)
class ServerHome:
    """A folder with the descriptor of its lock, which a server that inherits it keeps held for as long as it lives."""

    folder: Path
    lock: int


def claim_home(folder: Path, wait_seconds: float) -> ServerHome:
    """Take one folder; a server that is being killed lets go of it within milliseconds.

    Raises:
        HomeTakenError: another server still has it after `wait_seconds`.
        StorageError: it cannot be written.
    """
    descriptor = _open_lock(folder)
    deadline = time.monotonic() + wait_seconds
    while not _lock(descriptor):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise HomeTakenError(f"another Prefect server uses {folder}: stop it, or name another folder with --home")
        time.sleep(POLL_SECONDS)
    return ServerHome(folder, descriptor)


def claim_numbered_home(home: Path) -> ServerHome:
    """Take the first numbered folder below `home` that no other server has, so that no two share a database.

    Raises:
        StorageError: it cannot be written.
    """
    number = 0
    while True:
        descriptor = _open_lock(home / str(number))
        if _lock(descriptor):
            return ServerHome(home / str(number), descriptor)
        os.close(descriptor)
        number += 1


def _open_lock(folder: Path) -> int:
    with io_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
