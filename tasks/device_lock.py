"""One stage at a time on a set of devices: an exclusive lock for all runs of this user on this host."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from stages.store.io_errors import io_errors

POLL_SECONDS = 0.2


class DeviceLock:
    """A held lock on one device set.

    The stage's process inherits `descriptor`, so that the devices stay locked while that process lives, even where the
    run that started it was killed.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Let the next stage have the devices. Call it when the stage's process group is gone."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)


def acquire_devices(
    accelerator: str, folder: Path, give_up: Callable[[], bool], on_wait: Callable[[], None]
) -> DeviceLock | None:
    """Wait for the devices; None if `give_up` came to be true first.

    Args:
        accelerator: names the device set, for example `cpu`; it becomes a file's name.
        folder: where the lock files are.
        give_up: asked while the devices are taken; True ends the wait.
        on_wait: called once if the devices are taken.

    Raises:
        StorageError: the folder cannot be written.
    """
    with io_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f"{accelerator}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    waiting = False
    while not give_up():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not waiting:
                waiting = True
                on_wait()
            time.sleep(POLL_SECONDS)
        else:
            return DeviceLock(descriptor)
    os.close(descriptor)
    return None
