"""A store of each kind, and records to put into it."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest
from stages.store.provenance import Provenance

BACK_ENDS = ("memory", "local", "gcs")


@pytest.fixture(params=BACK_ENDS)
def store_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    if request.param == "local":
        return str(tmp_path / "a store")
    return request.getfixturevalue("gcs_store_uri")


@pytest.fixture
def store(store_uri: str) -> ConditionalStore:
    return open_store(store_uri)


@pytest.fixture
def local(tmp_path: Path) -> ConditionalStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def paths() -> StagePaths:
    return StagePaths("sft", "ab" * 32)


PROVENANCE = Provenance(argv=("temper",), git_revision=None, packages={}, host="here", python="3.11", system="Linux")


@pytest.fixture
def upload_manifest(tmp_path: Path, paths: StagePaths) -> Callable[[ConditionalStore, str, int], Manifest]:
    """Uploads one small output of an attempt and returns the manifest that would commit it."""

    def upload(store: ConditionalStore, attempt: str, epoch: int) -> Manifest:
        source = tmp_path / "adapter"
        source.write_text(f"weights of {attempt}")
        entry = store.upload(f"{paths.attempt(attempt).out('checkpoint')}/weights/adapter", source)
        return Manifest(
            stage=paths.kind,
            key=paths.key,
            version=1,
            attempt=attempt,
            epoch=epoch,
            outputs={"checkpoint": (entry.model_copy(update={"path": "weights/adapter"}),)},
            numbers={"loss": 0.5},
            inputs={},
            created="2026-01-01T00:00:00+00:00",
            seconds=1.0,
            provenance=PROVENANCE,
        )

    return upload
