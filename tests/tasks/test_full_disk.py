"""A disk that gets full at any point of a stage: a clear error, nothing lost, and the next attempt ends well."""

import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.manifest import check_files, read_manifest
from stages.store.segments import read_metrics
from tasks.execute_stage import execute_stage
from tasks.observer import Observers
from tasks.stage_work import StageFailedError, StageWork

MakeWork = Callable[..., StageWork]
SIZE = 1 << 20
PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, left: int) -> Path:
    """Leaves `left` pages of the disk."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    filler.write_bytes(b"x" * (free - left * PAGE))
    return filler


def failure_of(work: StageWork) -> str | None:
    try:
        execute_stage(work, Observers())
        return None
    except StageFailedError as error:
        failed = error
    except StorageError as error:
        return str(error)
    assert failed.cause == "storage", failed
    return failed.message


@pytest.mark.parametrize("left", [0, 3, 6, 9])
def test_a_store_that_gets_full_fails_the_stage_which_ends_well_once_there_is_room(
    make_work: MakeWork, small_disk: Path, left: int
) -> None:
    store = open_store(str(small_disk / "store"))
    store.create("v1/kept", b"before")
    work = dataclasses.replace(make_work(num_steps=4, save_every_steps=2), store=store)
    filler = fill(small_disk, left)
    message = failure_of(work)
    assert message is not None
    assert "No space left on device; free some space" in message
    assert read_manifest(store, work.paths) is None
    filler.unlink()
    assert failure_of(work) is None
    assert_well(store, work)
    kept = store.get("v1/kept")
    assert kept is not None
    assert kept.data == b"before"


def test_a_scratch_folder_that_gets_full_fails_the_stage_which_ends_well_once_there_is_room(
    make_work: MakeWork, store: ConditionalStore, small_disk: Path
) -> None:
    work = dataclasses.replace(make_work(num_steps=4, save_every_steps=2), cache=small_disk / "cache")
    for left in (0, 2, 3):
        filler = fill(small_disk, left)
        message = failure_of(work)
        filler.unlink()
        assert message is not None
        assert "No space left on device; free some space" in message
        assert read_manifest(store, work.paths) is None
    assert failure_of(work) is None
    assert_well(store, work)


def assert_well(store: ConditionalStore, work: StageWork) -> None:
    manifest = read_manifest(store, work.paths)
    assert manifest is not None
    assert check_files(store, manifest, deep=True) == []
    assert [row.step for row in read_metrics(store, work.paths)] == [1, 2, 3, 4]
