"""One stage at a time on a device: exclusive locks for all runs of this user on this host."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stages.errors import StorageError, UserError
from stages.store.io_errors import io_errors

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Wanted:
    """What a stage needs for itself.

    Attributes:
        accelerator: names the device set, for example `cpu`; it becomes a file's name.
        count: how many of the host's GPUs; none is all. Other accelerators are taken whole.
    """

    accelerator: str
    count: int | None = None

    @property
    def is_part(self) -> bool:
        """Whether single devices are taken, and others may have the rest."""
        return self.accelerator == "gpu" and self.count is not None

    def __str__(self) -> str:
        return f"{self.count} of this host's GPUs" if self.is_part else f"the {self.accelerator}"


@dataclass(frozen=True)
class DeviceLock:
    """Held locks on devices.

    The stage's process inherits `descriptors`, so that the devices stay locked while that process lives, even where the
    run that started it was killed.

    Attributes:
        descriptors: of the lock files.
        devices: the GPUs taken, as CUDA names them; empty where the whole set is.
    """

    descriptors: tuple[int, ...]
    devices: tuple[str, ...] = ()

    def release(self) -> None:
        """Let the next stage have the devices. Call it when the stage's process group is gone."""
        for descriptor in self.descriptors:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def acquire_devices(
    wanted: Wanted,
    folder: Path,
    give_up: Callable[[], bool],
    on_wait: Callable[[], None],
    visible_gpus: Callable[[], Sequence[str]] | None = None,
) -> DeviceLock | None:
    """Wait for the devices; None if `give_up` came to be true first.

    Args:
        wanted: the devices. Those of a set and the whole set exclude each other.
        folder: where the lock files are.
        give_up: asked while the devices are taken; True ends the wait.
        on_wait: called once if the devices are taken.
        visible_gpus: what the host has, for part of its GPUs.

    Raises:
        UserError: the host has fewer GPUs than are wanted.
        StorageError: the folder cannot be written.
    """
    gpus = _enough(wanted, (visible_gpus or host_gpus)()) if wanted.is_part else ()
    with io_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
    waiting = False
    while not give_up():
        lock = _take_part(folder, wanted, gpus) if wanted.is_part else _take_whole(folder, wanted)
        if lock is not None:
            return lock
        if not waiting:
            waiting = True
            on_wait()
        time.sleep(POLL_SECONDS)
    return None


def host_gpus() -> tuple[str, ...]:
    """The host's GPUs as CUDA names them: those that `CUDA_VISIBLE_DEVICES` leaves to this process, if it is set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name.strip() for name in chosen.split(",") if name.strip())
    numbers = [
        found[1] for device in Path("/dev").glob("nvidia*") if (found := re.fullmatch(r"nvidia(\d+)", device.name))
    ]
    return tuple(sorted(numbers, key=int))


def _enough(wanted: Wanted, gpus: Sequence[str]) -> Sequence[str]:
    assert wanted.count is not None
    if len(gpus) < wanted.count:
        seen = f"{len(gpus)} ({', '.join(gpus)})" if gpus else "none"
        raise UserError(f"resources.count is {wanted.count}, but of GPUs this host has {seen}")
    return gpus


def _take_whole(folder: Path, wanted: Wanted) -> DeviceLock | None:
    descriptor = _lock(folder / f"{wanted.accelerator}.lock", fcntl.LOCK_EX)
    return None if descriptor is None else DeviceLock((descriptor,))


def _take_part(folder: Path, wanted: Wanted, gpus: Sequence[str]) -> DeviceLock | None:
    """All of the part or nothing; one process at a time chooses, so that no two wait for each other's half."""
    with _choosing(folder):
        shared = _lock(folder / f"{wanted.accelerator}.lock", fcntl.LOCK_SH)
        if shared is None:
            return None
        taken: dict[str, int] = {}
        try:
            for gpu in gpus:
                descriptor = _lock(folder / f"{wanted.accelerator}-{_file_name(gpu)}.lock", fcntl.LOCK_EX)
                if descriptor is not None:
                    taken[gpu] = descriptor
                if len(taken) == wanted.count:
                    return DeviceLock((shared, *taken.values()), tuple(taken))
        except StorageError:
            DeviceLock((shared, *taken.values())).release()
            raise
        DeviceLock((shared, *taken.values())).release()
        return None


@contextmanager
def _choosing(folder: Path) -> Generator[None]:
    descriptor = _open(folder / "choosing.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(file: Path, how: int) -> int | None:
    """The descriptor of a lock file that is held now; None if another process has it."""
    descriptor = _open(file)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _open(file: Path) -> int:
    with io_errors("write", file):
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _file_name(gpu: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "_", gpu)
