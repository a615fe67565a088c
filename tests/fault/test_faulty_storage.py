"""A bucket whose service fails at random: results are right, or the error is clear and the next run goes on."""

import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from flows.cli import main
from stages.errors import StorageError
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.manifest import check_files, read_manifest
from stages.store.outputs import upload_output
from stages.store.runs import RunRecord, latest_run

RunFile = Callable[..., tuple[int, RunRecord]]
Smoke = Callable[[str], tuple[int, RunRecord]]
FaultyStorage = Callable[[int, float], AbstractContextManager[None]]

PIPELINES = Path(__file__).parents[2] / "pipelines"
NUM_RUNS = 10
RATE = 0.03
"""Of requests: a run of the smoke pipeline makes some thousands."""
MOST_TRIES = 5


def assert_whole(store_uri: str, record: RunRecord) -> dict[str, dict[str, str]]:
    """Every committed stage has all its files with their bytes; returns the checksums of outputs by stage."""
    store = open_store(store_uri)
    checksums: dict[str, dict[str, str]] = {}
    for stage in record.stages:
        manifest = read_manifest(store, StagePaths(stage.kind, stage.key)) if stage.key else None
        if manifest is not None:
            assert check_files(store, manifest, deep=True) == []
            files = {
                f"{name}/{file.path}": file.crc32c for name, entries in manifest.outputs.items() for file in entries
            }
            checksums[stage.id] = files
    return checksums


def test_what_is_stored_through_faults_is_read_back_whole(
    gcs_store_uri: str, faulty_storage: FaultyStorage, tmp_path: Path
) -> None:
    sizes, contents = random.Random(3), random.Random(4)
    with faulty_storage(5, 0.2):
        store = open_store(gcs_store_uri)
        for number in range(6):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "file").write_bytes(contents.randbytes(sizes.choice([0, 100, 300_000])))
            (entry,) = upload_output(store, f"v1/{number}", folder)
            fetched = store.fetch(f"v1/{number}/file", entry, tmp_path / "fetched" / str(number))
            assert fetched.read_bytes() == (folder / "file").read_bytes()
    assert [listed.path for listed in open_store(gcs_store_uri).list("v1")] == [f"v1/{n}/file" for n in range(6)]


@pytest.fixture
def smoke(module_smoke: Path, probe_python: str, prefect_api: str) -> Smoke:
    """`temper run smoke.yaml` on a store; returns the exit code and the record."""

    def run(store_uri: str) -> tuple[int, RunRecord]:
        code = main(["run", str(module_smoke / "smoke.yaml"), "--set", f"store={store_uri}"])
        record = latest_run(open_store(store_uri), "smoke")
        assert record is not None, f"the run failed before its first record, with exit code {code}"
        return code, record

    return run


@pytest.fixture
def module_smoke(tmp_path: Path, own_places: None) -> Path:
    """A copy of the pipeline, with cache and state that all its runs share."""
    shutil.copytree(PIPELINES / "tiny", tmp_path / "tiny")
    shutil.copy(PIPELINES / "smoke.yaml", tmp_path)
    (tmp_path / ".temper").mkdir()
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_runs_of_the_smoke_pipeline_through_faults_end_in_the_right_bytes(
    smoke: Smoke,
    gcs_store_uri: str,
    faulty_storage: FaultyStorage,
    tmp_path: Path,
) -> None:
    whole_uri = str(tmp_path / "whole")
    code, record = smoke(whole_uri)
    assert code == 0
    right = assert_whole(whole_uri, record)
    tries = [until_done(smoke, f"{gcs_store_uri}/{number}", faulty_storage, number) for number in range(NUM_RUNS)]
    for number in range(NUM_RUNS):
        code, record = smoke(f"{gcs_store_uri}/{number}")
        assert (code, {stage.outcome for stage in record.stages}) == (0, {"reused", "passed"})
        assert assert_whole(f"{gcs_store_uri}/{number}", record) == right
    assert tries.count(1) >= NUM_RUNS // 2, f"most faults are over before anybody notices, but runs took {tries} tries"


def until_done(smoke: Smoke, store_uri: str, faulty_storage: FaultyStorage, number: int) -> int:
    """How many runs it takes; each that fails says which object could not be read or written."""
    message = ""
    for tries in range(1, MOST_TRIES + 1):
        with faulty_storage(100 * number + tries, RATE):
            code, message = run_or_fail(smoke, store_uri)
        if code == 0:
            return tries
        assert "gs://" in message, message
    raise AssertionError(f"not done after {MOST_TRIES} runs: {message}")


def run_or_fail(smoke: Smoke, store_uri: str) -> tuple[int, str]:
    """Exit code, and what failed: only storage may."""
    try:
        code, record = smoke(store_uri)
    except StorageError as error:
        return 1, str(error)
    failed = [stage for stage in record.stages if stage.outcome == "failed"]
    assert all(stage.message.startswith("storage: ") for stage in failed), [stage.message for stage in failed]
    return code, "\n".join(stage.message for stage in failed)
