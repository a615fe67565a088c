"""A condemned result is good until it is swept."""

import json
from collections.abc import Callable

import pytest

from stages.store.conditional import ConditionalStore
from stages.store.holder import this_holder
from stages.store.layout import StagePaths
from stages.store.lease import Lease, Observation, acquire
from stages.store.manifest import (
    Committed,
    Condemned,
    Manifest,
    Swept,
    claim_manifest,
    commit_manifest,
    manifest_digest,
    read_manifest,
    read_manifest_file,
    why_lost,
)
from stages.store.memory import MemoryStore
from stages.store.records import encode

Upload = Callable[[ConditionalStore, str, int], Manifest]
NOW = "2026-01-01T00:00:00+00:00"


def commit(store: ConditionalStore, paths: StagePaths, upload: Upload) -> Manifest:
    lease = acquire(store, paths, this_holder(), Observation())
    assert isinstance(lease, Lease)
    manifest = upload(store, lease.attempt, lease.epoch)
    assert commit_manifest(store, paths, manifest, lease) == Committed(manifest)
    lease.release()
    return manifest


def condemn(store: ConditionalStore, paths: StagePaths) -> bytes:
    found = read_manifest_file(store, paths)
    assert found is not None
    assert isinstance(found.content, Manifest)
    condemned = Condemned(attempt=found.content.attempt, condemned_at=NOW, manifest=found.stored.data.decode())
    store.swap(paths.manifest, encode(condemned), found.stored.generation)
    return found.stored.data


def test_looking_at_a_condemned_result_leaves_it_condemned(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifest = commit(store, paths, upload_manifest)
    condemn(store, paths)
    assert read_manifest(store, paths) == manifest
    found = read_manifest_file(store, paths)
    assert found is not None
    assert isinstance(found.content, Condemned)


def test_a_claim_puts_the_manifest_back_byte_for_byte(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    assert claim_manifest(store, paths) is None
    manifest = commit(store, paths, upload_manifest)
    before = condemn(store, paths)
    assert claim_manifest(store, paths) == manifest
    stored = store.get(paths.manifest)
    assert stored is not None
    assert stored.data == before
    assert claim_manifest(store, paths) == manifest


def test_a_swept_result_is_absent_and_the_next_commit_replaces_it(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifest = commit(store, paths, upload_manifest)
    stored = store.get(paths.manifest)
    assert stored is not None
    store.swap(paths.manifest, encode(Swept(attempt=manifest.attempt, swept_at=NOW)), stored.generation)
    assert read_manifest(store, paths) is None
    assert claim_manifest(store, paths) is None
    assert why_lost(store, paths) == "collected as garbage 2026-01-01 00:00:00 UTC"
    again = commit(store, paths, upload_manifest)
    assert (again.epoch, read_manifest(store, paths)) == (2, again)
    assert why_lost(store, paths) is None


def test_an_attempt_that_worked_while_the_result_was_condemned_commits_its_own(
    store: ConditionalStore, paths: StagePaths, upload_manifest: Upload
) -> None:
    commit(store, paths, upload_manifest)
    condemn(store, paths)
    again = commit(store, paths, upload_manifest)
    assert claim_manifest(store, paths) == again


class SweepsFirst(MemoryStore):
    """The garbage collector sweeps between a claim's look and its write."""

    def swap(self, path: str, data: bytes, generation: str) -> str:
        stored = self.get(path)
        if path.endswith("/manifest.json") and stored is not None and json.loads(stored.data)["state"] == "condemned":
            super().swap(path, encode(Swept(attempt="000001-x", swept_at=NOW)), generation)
        return super().swap(path, data, generation)


def test_a_claim_that_comes_after_the_sweep_finds_nothing(paths: StagePaths, upload_manifest: Upload) -> None:
    store = SweepsFirst("memory://sweeps-first")
    commit(store, paths, upload_manifest)
    condemn(store, paths)
    assert claim_manifest(store, paths) is None


@pytest.mark.parametrize("field", ["size", "crc32c", "path"])
def test_the_digest_is_of_what_was_committed_not_of_where_it_lies(
    local: ConditionalStore, paths: StagePaths, upload_manifest: Upload, field: str
) -> None:
    manifest = upload_manifest(local, "000001-a", 1)
    (entry,) = manifest.outputs["checkpoint"]

    def with_entry(**changes: object) -> Manifest:
        return manifest.model_copy(update={"outputs": {"checkpoint": (entry.model_copy(update=changes),)}})

    moved = with_entry(generation="other").model_copy(update={"attempt": "000002-b", "seconds": 9.0})
    assert manifest_digest(moved) == manifest_digest(manifest)
    assert manifest_digest(with_entry(**{field: 1 if field == "size" else "x"})) != manifest_digest(manifest)
