"""Scratch folders and what is swept of them."""

import os
from pathlib import Path

import pytest

from stages.errors import StorageError
from tasks.scratch import OWNER_FILE, Scratch, sweep


def age(folder: Path) -> None:
    os.utime(folder / OWNER_FILE, (0, 0))


def test_a_folder_is_there_until_it_is_removed(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, "one")
    (scratch.path / "file").write_text("")
    scratch.remove()
    assert not list(tmp_path.iterdir())


def test_old_folders_without_an_owner_are_swept_and_no_others(tmp_path: Path) -> None:
    owned, left, fresh = (Scratch(tmp_path, name) for name in ("owned", "left", "fresh"))
    age(owned.path)
    age(left.path)
    os.close(left.descriptor)
    os.close(fresh.descriptor)
    sweep(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["fresh", "owned"]


def test_nothing_is_swept_where_there_is_nothing(tmp_path: Path) -> None:
    sweep(tmp_path / "none")


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/file/one: Not a directory"):
        Scratch(tmp_path / "file", "one")
