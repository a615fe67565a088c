"""The devices of one attempt, held while its process runs."""

from collections.abc import Generator
from contextlib import contextmanager

from stages.errors import UserError
from tasks.device_lock import DeviceLock, Wanted, acquire_devices
from tasks.lost_lease import LostLease
from tasks.observer import StageObserver
from tasks.stage_work import StageFailedError, StageWork

NOTHING = DeviceLock(())
"""What a stage that shares its devices has for itself."""


@contextmanager
def stage_devices(work: StageWork, observer: StageObserver, lost: LostLease) -> Generator[DeviceLock]:
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


def _acquire(work: StageWork, observer: StageObserver, lost: LostLease) -> DeviceLock:
    wanted = Wanted(work.node.resources.accelerator, work.node.resources.count)
    try:
        devices = acquire_devices(
            wanted,
            work.locks,
            give_up=lambda: work.stop.requested or lost.reason() is not None,
            on_wait=lambda: observer.waiting(f"waiting for {wanted}"),
        )
    except UserError as error:
        raise StageFailedError("user_error", str(error)) from error
    if devices is not None:
        return devices
    cause, message = lost.reason() or ("stopped", work.stop.reason)
    raise StageFailedError(cause, message, cause in work.node.retry.on)
