"""What only a store on a local disk has: inodes, permissions, a disk that is full, locks."""

import itertools
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stages.errors import StorageError
from stages.store import local as local_module
from stages.store.conditional import open_store
from stages.store.local import LocalStore

WRITER = """
import sys
from stages.store.conditional import PreconditionFailed, open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
input()
for _ in range(20):
    while True:
        stored = store.get("v1/count")
        try:
            store.swap("v1/count", str(int(stored.data) + 1).encode(), stored.generation)
            break
        except PreconditionFailed:
            continue
"""


def test_increments_from_several_processes_lose_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("v1/count", b"0")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.communicate("\n", timeout=60)
        assert child.returncode == 0
    stored = store.get("v1/count")
    assert stored is not None
    assert stored.data == b"60"


def test_paths_with_spaces_and_file_uris_are_one_store(tmp_path: Path) -> None:
    plain = open_store(str(tmp_path / "a b"))
    plain.create("v1/a", b"1")
    assert plain.uri == f"file://{tmp_path}/a%20b"
    assert open_store(plain.uri).location("v1/a") == str(tmp_path / "a b" / "v1" / "a")


def test_a_file_is_made_durable_together_with_its_generation_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source = LocalStore(tmp_path / "store"), tmp_path / "source"
    source.write_bytes(b"x")
    synced: dict[int, str] = {}
    fsync, placed = os.fsync, list[Path]()

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        synced[found.st_ino] = str(found.st_mtime_ns)

    replace = Path.replace

    def noting_replace(aside: Path, target: Path) -> Path:
        found = aside.stat()
        assert synced[found.st_ino] == str(found.st_mtime_ns)
        placed.append(target)
        return replace(aside, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "replace", noting_replace)
    store.swap("v1/a", b"2", store.create("v1/a", b"1"))
    store.upload("v1/b", source)
    assert [target.name for target in placed] == ["a", "a", "b"]


def test_a_full_disk_is_a_storage_error_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    generation = store.create("v1/a", b"kept")
    source = tmp_path / "source"
    source.write_bytes(b"x")

    # The kernel's own answer to a write on a full disk.
    def write_to_full_disk(target: Path, data: bytes) -> None:
        target.touch()
        with Path("/dev/full").open("wb") as full:
            full.write(data)

    monkeypatch.setattr(local_module, "_write", write_to_full_disk)
    monkeypatch.setattr(local_module, "_copy", lambda source, target: write_to_full_disk(target, b"x"))
    for write in (lambda: store.swap("v1/a", b"new", generation), lambda: store.upload("v1/b", source)):
        with pytest.raises(StorageError, match=r"v1/[ab]: No space left on device; free some space"):
            write()
    stored = store.get("v1/a")
    assert stored is not None
    assert (stored.data, stored.generation) == (b"kept", generation)
    assert [listed.path for listed in store.list("v1")] == ["v1/a"]
    assert list((tmp_path / local_module.ASIDE_FOLDER).iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_storage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="give this user the right to write there"):
            LocalStore(tmp_path / "store").create("v1/a", b"")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_way_is_a_storage_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    store = LocalStore(tmp_path / "store")
    with pytest.raises(StorageError, match=r"store/v1/a: .*(exists|directory).*"):
        store.create("v1/a", b"")


def test_a_lock_that_is_never_freed_ends_in_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_module, "LOCK_TIMEOUT_SECONDS", 0.1)
    store = LocalStore(tmp_path)
    store.create("v1/a", b"1")
    with store._lock("v1/a"):
        assert store.get("v1/a") is not None
        with pytest.raises(StorageError, match="held by another process"):
            store.create("v1/a", b"2")


def test_uploaded_files_are_read_in_place_and_cannot_be_written_by_mistake(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    entry = store.upload("v1/out/weights", source)
    file = store.fetch("v1/out/weights", entry, tmp_path / "unused")
    assert str(file) == store.location("v1/out/weights")
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
    assert not (tmp_path / "unused").exists()


def test_folders_that_became_empty_go_away_and_can_come_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("v1/a/b/c", b"1")
    store.create("v1/z", b"1")
    store.delete("v1/a/b/c")
    assert not (tmp_path / "v1" / "a").exists()
    store.create("v1/a/b/c", b"2")


def test_a_folder_that_goes_away_while_something_is_written_to_it_is_made_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    end = time.monotonic() + 1.0

    def write_and_delete(number: int) -> None:
        for count in itertools.count():
            if time.monotonic() > end:
                return
            path = f"v1/one/folder/{number}-{count}"
            store.create(path, b"")
            store.delete(path)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write_and_delete, range(6)))
    assert store.list("v1") == []


def test_a_folder_of_another_program_is_listed_with_what_it_holds(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folder = Path(store.location("v1/progress/10"))
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "array").write_bytes(b"12345")
    (listed,) = store.list("v1/progress/10")
    assert (listed.path, listed.size) == ("v1/progress/10/d/array", 5)
