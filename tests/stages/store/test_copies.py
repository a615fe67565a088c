"""Deep verification, and stores that were copied."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.store.conditional import ConditionalStore, open_store
from stages.store.copies import adopt_copies
from stages.store.holder import this_holder
from stages.store.layout import StagePaths
from stages.store.lease import Lease, Observation, acquire
from stages.store.manifest import Manifest, check_files, claim_manifest, commit_manifest, read_manifest
from stages.store.records import encode

Upload = Callable[[ConditionalStore, str, int], Manifest]


@pytest.fixture
def manifest(store: ConditionalStore, paths: StagePaths, upload_manifest: Upload) -> Manifest:
    """A committed one, in each kind of store."""
    return commit(store, paths, upload_manifest)


def commit(store: ConditionalStore, paths: StagePaths, upload: Upload) -> Manifest:
    lease = acquire(store, paths, this_holder(), Observation())
    assert isinstance(lease, Lease)
    manifest = upload(store, lease.attempt, lease.epoch)
    commit_manifest(store, paths, manifest, lease)
    return manifest


def weights(manifest: Manifest) -> str:
    return f"{manifest.output_folder('checkpoint')}/weights/adapter"


def rewrite(store: ConditionalStore, path: str, data: bytes | None = None) -> None:
    stored = store.get(path)
    assert stored is not None
    store.swap(path, stored.data if data is None else data, stored.generation)


def test_a_deep_check_reads_checksums_and_forgives_generations(store: ConditionalStore, manifest: Manifest) -> None:
    assert check_files(store, manifest, deep=True) == []
    rewrite(store, weights(manifest))
    assert check_files(store, manifest) == ["checkpoint/weights/adapter: changed since the commit"]
    assert check_files(store, manifest, deep=True) == []
    stored = store.get(weights(manifest))
    assert stored is not None
    rewrite(store, weights(manifest), b"X" + stored.data[1:])
    (problem,) = check_files(store, manifest, deep=True)
    assert problem.startswith("checkpoint/weights/adapter: crc32c is ")
    assert problem.endswith(f", committed was {manifest.outputs['checkpoint'][0].crc32c}")
    store.delete(weights(manifest))
    assert check_files(store, manifest, deep=True) == ["checkpoint/weights/adapter: missing"]


def test_a_checksum_of_nothing_is_none(store: ConditionalStore, manifest: Manifest) -> None:
    assert store.checksum("v1/none") is None
    assert store.checksum(weights(manifest)) == manifest.outputs["checkpoint"][0].crc32c


def test_an_adopted_copy_is_right_by_its_listing_again(
    store: ConditionalStore, paths: StagePaths, manifest: Manifest
) -> None:
    rewrite(store, weights(manifest))
    adopted = adopt_copies(store, manifest)
    assert claim_manifest(store, paths) == adopted
    assert check_files(store, adopted) == []
    assert adopt_copies(store, adopted) == adopted


def test_a_result_that_was_made_again_meanwhile_is_not_replaced_by_an_adopted_copy(
    store: ConditionalStore, paths: StagePaths, manifest: Manifest
) -> None:
    rewrite(store, weights(manifest))
    other = manifest.model_copy(update={"seconds": 2.0})
    rewrite(store, paths.manifest, encode(other))
    adopt_copies(store, manifest)
    assert read_manifest(store, paths) == other


def test_a_store_moved_by_a_copy_that_keeps_times_is_as_good_as_before(
    tmp_path: Path, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifest = commit(open_store(str(tmp_path / "store")), paths, upload_manifest)
    subprocess.run(["cp", "-a", str(tmp_path / "store"), str(tmp_path / "moved")], check=True)
    moved = open_store(str(tmp_path / "moved"))
    assert claim_manifest(moved, paths) == manifest
    assert check_files(moved, manifest) == []


def test_a_store_moved_by_a_copy_that_loses_times_is_adopted_after_a_deep_check(
    tmp_path: Path, paths: StagePaths, upload_manifest: Upload
) -> None:
    manifest = commit(open_store(str(tmp_path / "store")), paths, upload_manifest)
    shutil.copytree(tmp_path / "store", tmp_path / "moved", copy_function=shutil.copyfile)
    moved = open_store(str(tmp_path / "moved"))
    assert check_files(moved, manifest) != []
    assert check_files(moved, manifest, deep=True) == []
    assert check_files(moved, adopt_copies(moved, manifest)) == []


@pytest.mark.parametrize("nanoseconds", [1, 10**3, 10**6, 10**9, 2 * 10**9])
def test_generations_differ_where_the_file_system_rounds_times(
    tmp_path: Path, nanoseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    utime = os.utime

    def coarse(path: Path, ns: tuple[int, int]) -> None:
        utime(path, ns=(ns[0] // nanoseconds * nanoseconds, ns[1] // nanoseconds * nanoseconds))

    monkeypatch.setattr("os.utime", coarse)
    store = open_store(str(tmp_path))
    generations = [store.create("v1/a", b"x")]
    for _ in range(4):
        generations.append(store.swap("v1/a", b"x", generations[-1]))
    assert len(set(generations)) == 5
