"""The devices of one attempt, held while its process runs."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from stages.errors import UserError
from tasks.device_lock import DeviceLock, Wanted, acquire_devices
from tasks.observer import StageObserver
from tasks.stage_work import StageFailedError, StageWork

NOTHING = DeviceLock(())
"""What a stage that shares its devices has for itself."""


@contextmanager
def stage_devices(work: StageWork, observer: StageObserver, lost: threading.Event) -> Generator[DeviceLock]:
    """Waits for the devices and gives them back in the end.

    Raises:
        StageFailedError: the run was stopped or the lease was `lost` meanwhile, or the host has fewer devices than the
            stage wants.
    """
    devices = NOTHING if work.node.resources.share else _acquire(work, observer, lost)
    try:
        yield devices
    finally:
        devices.release()


def _acquire(work: StageWork, observer: StageObserver, lost: threading.Event) -> DeviceLock:
    wanted = Wanted(work.node.resources.accelerator, work.node.resources.count)
    try:
        devices = acquire_devices(
            wanted,
            work.locks,
            give_up=lambda: work.stop.requested or lost.is_set(),
            on_wait=lambda: observer.waiting(f"waiting for {wanted}"),
        )
    except UserError as error:
        raise StageFailedError("user_error", str(error)) from error
    if devices is not None:
        return devices
    if lost.is_set():
        raise StageFailedError("fenced", "another attempt took the lease")
    raise StageFailedError("stopped", work.stop.reason)
