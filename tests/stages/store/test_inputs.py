from pathlib import Path

import made_stages
import pytest

from stages.contract import StoredBase, StoredInput
from stages.errors import CorruptArtifactError, UserError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.inputs import fetch_input, find_base
from stages.store.layout import StagePaths, attempt_name
from stages.store.outputs import upload_output

KEY = "cd" * 32


@pytest.fixture
def committed(store: ConditionalStore, tmp_path: Path) -> StoredInput:
    return commit(store, tmp_path)


def commit(store: ConditionalStore, tmp_path: Path) -> StoredInput:
    source = tmp_path / "out"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "artifact.json").write_text("{}")
    (source / "deep" / "er" / "weights").write_bytes(b"\x00" * 1000)
    folder = StagePaths("sft", KEY).attempt(attempt_name(1, "aa")).out("checkpoint")
    files = upload_output(store, folder, source)
    return StoredInput(stage="sft", key=KEY, output="checkpoint", folder=folder, files=files)


def test_an_output_comes_back_as_the_folder_it_was(
    store: ConditionalStore, committed: StoredInput, tmp_path: Path
) -> None:
    folder = fetch_input(store, committed, tmp_path / "cache")
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {"artifact.json": b"{}", "deep/er/weights": b"\x00" * 1000}
    assert fetch_input(store, committed, tmp_path / "cache") == folder


def test_a_changed_byte_names_producer_and_file(
    store: ConditionalStore, committed: StoredInput, tmp_path: Path
) -> None:
    path = f"{committed.folder}/deep/er/weights"
    stored = store.get(path)
    assert stored is not None
    store.swap(path, b"\x00" * 999 + b"\x01", stored.generation)
    with pytest.raises(CorruptArtifactError, match=r"sft cdcdcdcdcdcdcdcd, output 'checkpoint', deep/er/weights") as e:
        fetch_input(store, committed, tmp_path / "cache")
    assert (e.value.stage, e.value.key) == ("sft", KEY)


def test_a_missing_file_names_producer_and_file(
    store: ConditionalStore, committed: StoredInput, tmp_path: Path
) -> None:
    store.delete(f"{committed.folder}/artifact.json")
    with pytest.raises(CorruptArtifactError, match=r"artifact\.json.*missing"):
        fetch_input(store, committed, tmp_path / "cache")


def test_a_damaged_copy_in_the_cache_is_fetched_again(gcs_store_uri: str, tmp_path: Path) -> None:
    store = open_store(gcs_store_uri)
    committed = commit(store, tmp_path)
    folder = fetch_input(store, committed, tmp_path / "cache")
    assert folder == tmp_path / "cache"
    (folder / "artifact.json").write_text("[]")
    fetch_input(store, committed, tmp_path / "cache")
    assert (folder / "artifact.json").read_text() == "{}"


def test_a_base_is_found_by_its_stage_and_its_bytes(store: ConditionalStore) -> None:
    paths = made_stages.paths_of("merged", "export")
    manifest = made_stages.commit(store, paths, output="model", files={"weights": b"12", "config.json": b"{}"})
    checksums = {entry.path: entry.crc32c for entry in manifest.outputs["model"]}
    base = StoredBase(stage="export", key=paths.key, output="model", checksums=checksums)
    found = find_base(store, base)
    assert (found.files, found.folder) == (manifest.outputs["model"], manifest.output_folder("model"))
    with pytest.raises(UserError, match="made again with other weights"):
        find_base(store, base.model_copy(update={"checksums": checksums | {"weights": "00000000"}}))
    for gone in (base.model_copy(update={"key": "ab" * 32}), base.model_copy(update={"output": "other"})):
        with pytest.raises(UserError, match="is not in the store any more; run its stage again"):
            find_base(store, gone)
