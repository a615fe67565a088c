"""The leash: a named pipe that `temper up` holds open; the processes of runs end when it is gone, however it went.

They are no children of it but of the worker, which may die and be started again without hurting them.
"""

import os
import stat
from pathlib import Path

from stages.lifeline import hold
from stages.store.io_errors import io_errors


class Leash:
    """The end that is held; `path` is where the other ends are taken up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with io_errors("write", path):
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
            # A pipe opened to read and write waits for nobody, and is no end of file to its readers.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def release(self) -> None:
        """Let go: what still hangs on it is killed."""
        self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def hang_on(path: Path) -> bool:
    """Put this process into a session of its own that is killed when the leash is let go.

    Returns:
        False if nobody holds it any more: end then.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode) or _is_at_end(descriptor):
        return False
    if os.getpgrp() != os.getpid():
        os.setsid()
    os.dup2(descriptor, 0)
    os.close(descriptor)
    assert hold(), "stdin is a pipe, and the process group is our own"
    return True


def _is_at_end(descriptor: int) -> bool:
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False
