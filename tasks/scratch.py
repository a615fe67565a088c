"""Local folders that belong to one attempt each, removed after it even where its run was killed."""

import fcntl
import os
import shutil
import time
from pathlib import Path

from stages.store.io_errors import io_errors

OWNER_FILE = ".owner"
SWEEP_AGE_SECONDS = 3600.0


class Scratch:
    """A new folder; the stage's process inherits `descriptor`, which keeps it from being swept.

    Making it raises `StorageError` where the folder cannot be written.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / name
        with io_errors("write", self.path):
            self.path.mkdir(parents=True)
            self.descriptor = os.open(self.path / OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete the folder. Call it when the stage's process group is gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.descriptor)


def sweep(root: Path) -> None:
    """Delete the folders that nobody owns any more."""
    for owner in root.glob(f"*/{OWNER_FILE}"):
        try:
            if time.time() - owner.stat().st_mtime < SWEEP_AGE_SECONDS:
                continue
            descriptor = os.open(owner, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
