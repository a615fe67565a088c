"""The lock on a device set."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from stages.errors import StorageError
from tasks.device_lock import acquire_devices


def take(folder: Path, devices: str = "cpu", seconds: float = 0.0) -> tuple[object, list[str]]:
    """The lock or None after `seconds`, and whether the caller was told to wait."""
    told: list[str] = []
    patience = threading.Event()
    threading.Timer(seconds, patience.set).start()
    return acquire_devices(devices, folder, patience.is_set, lambda: told.append("wait")), told


def test_only_one_has_the_devices_and_the_next_is_told_once_that_it_waits(tmp_path: Path) -> None:
    lock, told = take(tmp_path, seconds=5)
    assert (lock is not None, told) == (True, [])
    assert take(tmp_path, seconds=0.5) == (None, ["wait"])
    assert lock is not None
    lock.release()  # type: ignore[attr-defined]
    assert take(tmp_path, seconds=5)[0] is not None


def test_a_folder_of_locks_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/file/locks: Not a directory"):
        take(tmp_path / "file" / "locks")


def test_other_devices_are_free(tmp_path: Path) -> None:
    assert take(tmp_path, "cpu", 5)[0] is not None
    assert take(tmp_path, "gpu", 5)[0] is not None


def test_a_process_that_inherited_the_lock_keeps_it_when_the_run_is_gone(tmp_path: Path) -> None:
    lock = acquire_devices("cpu", tmp_path, lambda: False, lambda: None)
    assert lock is not None
    child = subprocess.Popen(["sleep", "1000"], pass_fds=(lock.descriptor,))
    os.close(lock.descriptor)
    try:
        assert take(tmp_path, seconds=0.5)[0] is None
    finally:
        child.kill()
        child.wait()
    assert take(tmp_path, seconds=5)[0] is not None
