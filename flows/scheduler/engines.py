"""The processes of runs that a `temper up` has, each with a locked file that holds its id."""

import fcntl
import os
import signal
from pathlib import Path


def register(folder: Path, name: str) -> None:
    """Be one of them until this process ends, which lets go of the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())


def running(folder: Path) -> list[int]:
    """Ids of those that live; what the others left is removed."""
    found = []
    for path in sorted(folder.glob("*")):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(int(file.read() or b"0"))
            else:
                path.unlink()
    return [process for process in found if process]


def ask_to_stop(processes: list[int]) -> None:
    """They save what they have and hand their run back."""
    for process in processes:
        try:
            os.kill(process, signal.SIGTERM)
        except ProcessLookupError:
            continue
