"""The locks on devices."""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stages.errors import StorageError, UserError
from tasks.device_lock import DeviceLock, Wanted, acquire_devices, host_gpus

CPU = Wanted("cpu")
GPUS = ("0", "1", "2")


def take(folder: Path, wanted: Wanted = CPU, seconds: float = 5.0, gpus: Sequence[str] = GPUS) -> DeviceLock | None:
    """The lock or None after `seconds`."""
    patience = threading.Event()
    timer = threading.Timer(seconds, patience.set)
    timer.start()
    try:
        return acquire_devices(wanted, folder, patience.is_set, lambda: None, lambda: gpus)
    finally:
        timer.cancel()


def take_now(folder: Path, wanted: Wanted) -> DeviceLock | None:
    """The lock or None if it would have to be waited for."""
    asked: list[None] = []
    return acquire_devices(wanted, folder, lambda: bool(asked), lambda: asked.append(None), lambda: GPUS)


def test_only_one_has_the_devices_and_the_next_is_told_once_that_it_waits(tmp_path: Path) -> None:
    lock = take(tmp_path)
    assert lock is not None
    told: list[str] = []
    patience = threading.Event()
    threading.Timer(0.5, patience.set).start()
    assert acquire_devices(CPU, tmp_path, patience.is_set, lambda: told.append("wait")) is None
    assert told == ["wait"]
    lock.release()
    assert take(tmp_path) is not None


def test_a_folder_of_locks_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/file/locks: Not a directory"):
        take(tmp_path / "file" / "locks")


def test_other_devices_are_free(tmp_path: Path) -> None:
    assert take(tmp_path, CPU) is not None
    assert take(tmp_path, Wanted("gpu")) is not None


def test_a_process_that_inherited_the_lock_keeps_it_when_the_run_is_gone(tmp_path: Path) -> None:
    for wanted, other in ((CPU, CPU), (Wanted("gpu", 3), Wanted("gpu", 1)), (Wanted("gpu", 1), Wanted("gpu"))):
        lock = take(tmp_path, wanted)
        assert lock is not None
        child = subprocess.Popen(["sleep", "1000"], pass_fds=lock.descriptors)
        for descriptor in lock.descriptors:
            os.close(descriptor)
        try:
            assert take_now(tmp_path, other) is None
        finally:
            child.kill()
            child.wait()
        freed = take(tmp_path, other)
        assert freed is not None
        freed.release()


def test_parts_of_the_gpus_go_to_several_stages_until_too_few_are_left(tmp_path: Path) -> None:
    one, two = take(tmp_path, Wanted("gpu", 1)), take(tmp_path, Wanted("gpu", 1))
    assert one is not None
    assert two is not None
    assert (one.devices, two.devices) == (("0",), ("1",))
    assert take_now(tmp_path, Wanted("gpu", 2)) is None
    one.release()
    pair = take(tmp_path, Wanted("gpu", 2))
    assert pair is not None
    assert pair.devices == ("0", "2")


def test_a_part_that_cannot_be_had_whole_is_not_held_half(tmp_path: Path) -> None:
    assert take(tmp_path, Wanted("gpu", 2)) is not None
    assert take_now(tmp_path, Wanted("gpu", 2)) is None
    assert take_now(tmp_path, Wanted("gpu", 1)) is not None


def test_a_lock_file_that_cannot_be_opened_leaves_none_of_the_others_held(tmp_path: Path) -> None:
    (tmp_path / "gpu-1.lock").mkdir()
    with pytest.raises(StorageError, match=r"gpu-1\.lock"):
        take(tmp_path, Wanted("gpu", 2))
    (tmp_path / "gpu-1.lock").rmdir()
    assert take_now(tmp_path, Wanted("gpu", 3)) is not None


def test_many_at_once_get_what_they_want_and_never_the_same_gpu(tmp_path: Path) -> None:
    held: set[str] = set()
    guard = threading.Lock()

    def use(count: int | None) -> bool:
        lock = take(tmp_path, Wanted("gpu", count), seconds=30)
        assert lock is not None
        mine = set(lock.devices or GPUS)
        with guard:
            apart = not held & mine
            held.update(mine)
        time.sleep(0.02)
        with guard:
            held.difference_update(mine)
        lock.release()
        return apart and len(mine) == (count or len(GPUS))

    with ThreadPoolExecutor(9) as pool:
        assert all(pool.map(use, [1, 2, 3, None, 2, 1, 3, 1, 2]))


def test_all_gpus_and_single_ones_exclude_each_other(tmp_path: Path) -> None:
    single = take(tmp_path, Wanted("gpu", 1))
    assert single is not None
    assert take_now(tmp_path, Wanted("gpu")) is None
    single.release()
    whole = take(tmp_path, Wanted("gpu"))
    assert whole is not None
    assert whole.devices == ()
    assert take_now(tmp_path, Wanted("gpu", 1)) is None


def test_the_cpu_is_taken_whole_whatever_the_count(tmp_path: Path) -> None:
    assert take(tmp_path, Wanted("cpu", 1)) is not None
    assert take_now(tmp_path, Wanted("cpu", 1)) is None


@pytest.mark.parametrize(("gpus", "seen"), [((), "none"), (("0", "1"), r"2 \(0, 1\)")])
def test_more_gpus_than_the_host_has_are_an_error_and_no_wait(tmp_path: Path, gpus: Sequence[str], seen: str) -> None:
    with pytest.raises(UserError, match=f"resources.count is 3, but of GPUs this host has {seen}$"):
        take(tmp_path, Wanted("gpu", 3), gpus=gpus)


def test_the_gpus_that_the_environment_leaves_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f1c")
    assert host_gpus() == ("3", "GPU-8f1c")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert host_gpus() == ()
