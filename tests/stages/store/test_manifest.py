import json
from collections.abc import Callable

import pytest

from stages.errors import LeaseLostError, StorageError, UserError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import this_holder
from stages.store.layout import StagePaths
from stages.store.lease import Lease, Observation, acquire
from stages.store.manifest import (
    Adopted,
    Committed,
    Manifest,
    SpecMismatchError,
    check_files,
    commit_manifest,
    quarantine,
    read_manifest,
    read_spec,
    write_spec,
)
from stages.store.memory import MemoryStore

Upload = Callable[[ConditionalStore, str, int], Manifest]


def take(store: ConditionalStore, paths: StagePaths) -> Lease:
    lease = acquire(store, paths, this_holder(), Observation())
    assert isinstance(lease, Lease)
    return lease


def commit(store: ConditionalStore, paths: StagePaths, upload: Upload) -> Manifest:
    lease = take(store, paths)
    manifest = upload(store, lease.attempt, lease.epoch)
    assert commit_manifest(store, paths, manifest, lease) == Committed(manifest)
    lease.release()
    return manifest


def file_path(manifest: Manifest) -> str:
    return f"{manifest.output_folder('checkpoint')}/weights/adapter"


def test_a_committed_manifest_is_read_back_and_its_files_are_there(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    assert read_manifest(store, paths) is None
    manifest = commit(store, paths, upload_manifest)
    assert read_manifest(store, paths) == manifest
    assert check_files(store, manifest) == []


def test_an_output_that_the_stage_did_not_have_yet_is_told(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifest = commit(store, paths, upload_manifest)
    assert manifest.as_input("checkpoint").files == manifest.outputs["checkpoint"]
    with pytest.raises(UserError, match="had no output 'table' yet: have it made again with --force"):
        manifest.as_input("table")


def test_a_second_attempt_adopts_what_the_first_committed(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    first = commit(store, paths, upload_manifest)
    lease = take(store, paths)
    second = upload_manifest(store, lease.attempt, lease.epoch)
    assert commit_manifest(store, paths, second, lease) == Adopted(first)
    assert read_manifest(store, paths) == first


def test_an_attempt_that_lost_its_lease_commits_nothing(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    lost = take(store, paths)
    manifest = upload_manifest(store, lost.attempt, lost.epoch)
    lost.release()
    take(store, paths)
    with pytest.raises(LeaseLostError):
        commit_manifest(store, paths, manifest, lost)
    assert store.get(paths.manifest) is None


def test_nothing_is_committed_while_a_listed_file_is_missing(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    lease = take(store, paths)
    manifest = upload_manifest(store, lease.attempt, lease.epoch)
    store.delete(file_path(manifest))
    with pytest.raises(StorageError, match="checkpoint/weights/adapter: missing"):
        commit_manifest(store, paths, manifest, lease)
    assert store.get(paths.manifest) is None


def test_missing_and_changed_files_are_listed_problems(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifest = commit(store, paths, upload_manifest)
    stored = store.get(file_path(manifest))
    assert stored is not None
    generation = store.swap(file_path(manifest), stored.data, stored.generation)
    assert check_files(store, manifest) == ["checkpoint/weights/adapter: changed since the commit"]
    store.swap(file_path(manifest), b"short", generation)
    assert check_files(store, manifest) == [f"checkpoint/weights/adapter: 5 bytes, committed were {len(stored.data)}"]
    store.delete(file_path(manifest))
    assert check_files(store, manifest) == ["checkpoint/weights/adapter: missing"]


def test_a_quarantined_manifest_is_absent_kept_aside_and_replaced_by_the_next_commit(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    bad = commit(store, paths, upload_manifest)
    quarantine(store, paths, "3 of 41 objects missing")
    assert read_manifest(store, paths) is None
    stored = store.get(paths.manifest)
    assert stored is not None
    assert json.loads(stored.data)["reason"] == "3 of 41 objects missing"
    kept = store.get(paths.bad_manifest(1))
    assert kept is not None
    assert Manifest.model_validate_json(kept.data) == bad
    good = commit(store, paths, upload_manifest)
    assert good.epoch == 2
    assert read_manifest(store, paths) == good


def test_each_quarantine_has_its_own_number(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifests = []
    for _ in range(2):
        manifests.append(commit(store, paths, upload_manifest))
        quarantine(store, paths, "damaged")
        quarantine(store, paths, "a second report of the same damage")
    kept = [store.get(paths.bad_manifest(n)) for n in (1, 2, 3)]
    assert [Manifest.model_validate_json(k.data) for k in kept if k is not None] == manifests


def test_a_late_report_about_an_old_attempt_leaves_the_new_result(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    bad = commit(store, paths, upload_manifest)
    quarantine(store, paths, "damaged", bad.attempt)
    good = commit(store, paths, upload_manifest)
    quarantine(store, paths, "damaged", bad.attempt)
    assert read_manifest(store, paths) == good


class LosesCommitAnswer(MemoryStore):
    """The manifest is written, but its writer does not hear of it."""

    def __init__(self, failure: type[StorageError], writes: bool) -> None:
        super().__init__("memory://loses-commit-answer")
        self.failures = [failure]
        self.writes = writes

    def create(self, path: str, data: bytes) -> str:
        if not path.endswith("/manifest.json") or not self.failures:
            return super().create(path, data)
        if self.writes:
            super().create(path, data)
        raise self.failures.pop()("no answer")


@pytest.mark.parametrize(
    ("failure", "writes"), [(PreconditionFailed, True), (StorageError, True), (StorageError, False)]
)
def test_a_commit_without_an_answer_is_looked_up_and_not_repeated(
    paths: StagePaths,
    upload_manifest: Upload,
    failure: type[StorageError],
    writes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stages.store.manifest.COMMIT_PAUSE_SECONDS", 0.0)
    store = LosesCommitAnswer(failure, writes)
    manifest = commit(store, paths, upload_manifest)
    assert read_manifest(store, paths) == manifest


def test_a_spec_is_stored_once_and_compared_byte_by_byte(store: ConditionalStore, paths: StagePaths) -> None:
    assert read_spec(store, paths) is None
    write_spec(store, paths, b'{"seed":1}')
    write_spec(store, paths, b'{"seed":1}')
    assert read_spec(store, paths) == b'{"seed":1}'
    with pytest.raises(SpecMismatchError, match=r"spec\.json: holds another identity"):
        write_spec(store, paths, b'{"seed":2}')
    assert read_spec(store, paths) == b'{"seed":1}'


def test_a_damaged_manifest_is_an_error_that_names_it(store: ConditionalStore, paths: StagePaths) -> None:
    store.create(paths.manifest, b'{"state": "committed"')
    with pytest.raises(StorageError, match=r"manifest\.json: no "):
        read_manifest(store, paths)
