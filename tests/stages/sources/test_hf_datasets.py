"""Data sets of a Hub that runs here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Repository, serving
from huggingface_hub import constants

from stages.contract import SourceRef
from stages.engine.data.raw.file import TABLES, TEXTS
from stages.errors import StorageError, UserError
from stages.sources.hf_datasets import ROWS
from stages.sources.resolve import check, open_source, resolve

HERE = Path()
OLD, NEW = "a" * 40, "b" * 40
FILES = {
    "data/train-00000-of-00001.jsonl": b'{"text": "a"}',
    "data/test-00000-of-00001.jsonl": b'{"text": "b"}',
    "easy/rows.csv": b"text",
    "README.md": b"words",
    "picture.png": b"no rows",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A Hub with one data set, and an empty cache."""
    repository = Repository({OLD: {"README.md": b""}, NEW: FILES}, {"main": NEW, "v0": OLD})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with serving({"org/rows": repository}) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield repository


def test_a_data_set_is_its_commit_and_only_files_of_rows_are_fetched(hub: Repository, tmp_path: Path) -> None:
    source = resolve("hf://datasets/org/rows", HERE)
    assert source.digest == f"hf:{NEW}"
    folder = open_source(source, tmp_path / "cache")
    assert sorted(hub.served) == sorted(name for name in FILES if name.endswith((".jsonl", ".csv")))
    assert (folder / "data" / "test-00000-of-00001.jsonl").read_bytes() == b'{"text": "b"}'


@pytest.mark.parametrize(
    ("path", "fetched"),
    [
        ("data", ["data/test-00000-of-00001.jsonl", "data/train-00000-of-00001.jsonl"]),
        ("easy/rows.csv", ["easy/rows.csv"]),
    ],
)
def test_a_folder_or_file_of_it_is_fetched_alone_and_is_another_identity(
    hub: Repository, tmp_path: Path, path: str, fetched: list[str]
) -> None:
    source = resolve(f"hf://datasets/org/rows@main/{path}", HERE)
    assert source.digest == f"hf:{NEW}/{path}"
    opened = open_source(source, tmp_path / "cache")
    assert opened.as_posix().endswith(path)
    assert sorted(hub.served) == fetched
    hub.served.clear()
    assert open_source(source, tmp_path / "cache") == opened
    assert hub.served == []


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("hf://datasets/org/none", "no such dataset, or it is private"),
        ("hf://datasets/org/rows@v0", "it holds no file of rows; known are .jsonl"),
        ("hf://datasets/org/rows/hard", "it holds no file of rows in hard"),
        ("hf://datasets/org/rows@v9", "has no branch, tag or commit v9"),
    ],
)
def test_what_the_hub_does_not_have_is_told_when_the_plan_is_made(hub: Repository, uri: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve(uri, HERE)


def test_what_is_damaged_in_the_cache_is_told(hub: Repository, tmp_path: Path) -> None:
    source = resolve("hf://datasets/org/rows/easy", HERE)
    blob = (open_source(source, tmp_path) / "rows.csv").resolve()
    blob.write_bytes(b"other")
    with pytest.raises(StorageError, match=f"damaged in the cache: {blob}"):
        open_source(source, tmp_path)


def test_offline_the_command_that_fills_the_cache_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=f"hf download org/rows --repo-type dataset --revision {NEW}"):
        open_source(SourceRef(uri="hf://datasets/org/rows", digest=f"hf:{NEW}"), tmp_path)


@pytest.mark.parametrize("uri", ["hf://datasets/rows", "hf://datasets/org/rows@a@b", "hf://datasets/org/../x"])
def test_a_wrong_form_is_refused(uri: str) -> None:
    with pytest.raises(UserError, match="expected hf://datasets/org/name@revision"):
        check(uri)


def test_what_is_fetched_is_what_can_be_read() -> None:
    assert set(ROWS) == {*TEXTS, *TABLES}
