from pathlib import Path

import pytest

from stages.contract import FileEntry
from stages.store.checksum import file_crc32c
from stages.store.conditional import ConditionalStore, PreconditionFailed, StoredObject
from stages.store.local import LocalStore
from stages.store.memory import MemoryStore
from stages.store.outputs import upload_output


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "two").write_text("2")
    (folder / "a").write_text("1")
    return folder


def test_entries_are_relative_sorted_and_name_what_is_stored(store: ConditionalStore, source: Path) -> None:
    entries = upload_output(store, "v1/out/checkpoint", source)
    assert [entry.path for entry in entries] == ["a", "b/two"]
    listed = {found.path: found for found in store.list("v1/out/checkpoint")}
    assert [listed[f"v1/out/checkpoint/{entry.path}"].generation for entry in entries] == [
        entry.generation for entry in entries
    ]


def test_an_upload_whose_answer_was_lost_is_recognised(source: Path) -> None:
    class LosesAnswers(MemoryStore):
        def upload(self, path: str, source: Path) -> FileEntry:
            super().upload(path, source)
            raise PreconditionFailed("asked again by the client")

    store = LosesAnswers("memory://loses-answers")
    entries = upload_output(store, "v1/out", source)
    assert entries == tuple(
        entry.model_copy(update={"generation": listed.generation})
        for entry, listed in zip(entries, store.list("v1/out"), strict=True)
    )
    assert [entry.crc32c for entry in entries] == [file_crc32c(source / "a"), file_crc32c(source / "b" / "two")]


def test_other_bytes_at_the_same_place_are_an_error(store: ConditionalStore, source: Path) -> None:
    store.create("v1/out/a", b"not ours")
    with pytest.raises(PreconditionFailed):
        upload_output(store, "v1/out", source)


def test_an_upload_whose_answer_was_lost_is_recognised_without_reading_all_of_it(source: Path, tmp_path: Path) -> None:
    class LosesAnswers(LocalStore):
        def upload(self, path: str, source: Path) -> FileEntry:
            super().upload(path, source)
            raise PreconditionFailed("asked again by the client")

        def get(self, path: str) -> StoredObject | None:
            raise AssertionError(f"{path} may be larger than the memory")

    entries = upload_output(LosesAnswers(tmp_path / "store"), "v1/out", source)
    assert [(entry.path, entry.size) for entry in entries] == [("a", 1), ("b/two", 1)]
