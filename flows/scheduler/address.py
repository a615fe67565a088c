"""Where a running `temper up` tells its address, for the other commands of its project."""

import fcntl
import os
import time
from pathlib import Path

from flows.prefect_pages import page_of
from stages.contract import Strict
from stages.errors import TemperError
from stages.store.io_errors import io_errors

CLAIM_SECONDS = 2.0
POLL_SECONDS = 0.05


class AlreadyUpError(TemperError):
    """Another `temper up` runs in this project; the message says where."""


class Up(Strict):
    """A running `temper up`."""

    address: str
    """Of Prefect's API."""
    process: int
    folder: str
    """Where its database and logs are."""


class UpRecord:
    """The lock and the file of one project, held by its `temper up` until `release`."""

    def __init__(self, state: Path) -> None:
        """Raises `AlreadyUpError`."""
        self._path = state / "up.json"
        with io_errors("write", state):
            state.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(state / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + CLAIM_SECONDS
        while not _claim(self._lock, fcntl.LOCK_EX):
            # Someone who only looks holds the lock for an instant.
            if time.monotonic() > deadline:
                raise AlreadyUpError(_describe(find_up(state)))
            time.sleep(POLL_SECONDS)
        self._path.unlink(missing_ok=True)

    def tell(self, up: Up) -> None:
        """Let others find it."""
        fresh = self._path.with_suffix(".new")
        with io_errors("write", self._path):
            fresh.write_text(up.model_dump_json())
            fresh.replace(self._path)

    def release(self) -> None:
        """It is over."""
        self._path.unlink(missing_ok=True)
        os.close(self._lock)


def find_up(state: Path, wait_seconds: float = 0.0) -> Up | None:
    """The `temper up` that runs for the project with this state folder; waited for while it starts, then none."""
    deadline = time.monotonic() + wait_seconds
    while _is_held(state / "up.lock"):
        try:
            return Up.model_validate_json((state / "up.json").read_bytes())
        except FileNotFoundError:
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
    return None


def _is_held(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _claim(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def _claim(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe(up: Up | None) -> str:
    if up is None:
        return "another `temper up` is starting in this project: wait for it"
    page = page_of(up.address)
    return (
        f"`temper up` runs already in this project: {page} (process {up.process}, data in {up.folder}); "
        "stop it with Ctrl-C there, or use it: `temper deploy FILE` finds it"
    )
