"""The smoke pipeline: run and reused, killed and resumed, and on a bucket."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.cli import main
from stages.contract import ARTIFACT_FILE
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest, read_manifest
from stages.store.progress import committed_points
from stages.store.runs import RunRecord, RunStage, latest_run

PIPELINES = Path(__file__).parents[2] / "pipelines"
KILLS = {"sft": 13, "grpo": 4}
"""Stage to the step after which it is killed."""

Smoke = Callable[..., tuple[int, RunRecord]]


@pytest.fixture
def smoke(prefect_api: str, module_places: Path, probe_python: str) -> Smoke:
    """`temper run smoke.yaml` on a store; returns the exit code and the record."""

    def run(store: str, *flags: str) -> tuple[int, RunRecord]:
        overrides = [f"store={store}", f"defaults.resources.python={probe_python}"]
        code = main(
            [
                "run",
                str(module_places / "smoke.yaml"),
                *(part for text in overrides for part in ("--set", text)),
                *flags,
            ]
        )
        record = latest_run(open_store(store), "smoke")
        assert record is not None
        return code, record

    return run


@pytest.fixture(scope="module")
def module_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the pipeline, and the cache and state that the tests of this module share."""
    folder = tmp_path_factory.mktemp("smoke")
    shutil.copytree(PIPELINES / "tiny", folder / "tiny")
    shutil.copy(PIPELINES / "smoke.yaml", folder)
    (folder / ".temper").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield folder


def stage_of(record: RunRecord, name: str) -> RunStage:
    return next(stage for stage in record.stages if stage.id == name)


def manifest_of(store: ConditionalStore, record: RunRecord, name: str) -> Manifest:
    stage = stage_of(record, name)
    assert stage.key is not None
    manifest = read_manifest(store, StagePaths(stage.kind, stage.key))
    assert manifest is not None
    return manifest


def output_bytes(store: ConditionalStore, manifest: Manifest, output: str) -> dict[str, bytes]:
    folder = manifest.output_folder(output)
    stored = {entry.path: store.get(f"{folder}/{entry.path}") for entry in manifest.outputs[output]}
    return {path: found.data for path, found in stored.items() if found is not None}


def adapters(store: ConditionalStore, record: RunRecord) -> dict[str, dict[str, bytes]]:
    return {name: output_bytes(store, manifest_of(store, record, name), "checkpoint") for name in KILLS}


@pytest.fixture(scope="module")
def whole(module_places: Path) -> dict[str, dict[str, bytes]]:
    """Filled by the first test: the adapters of a run that nothing interrupts."""
    return {}


def uninterrupted(whole: dict[str, dict[str, bytes]], smoke: Smoke, folder: Path) -> dict[str, dict[str, bytes]]:
    if not whole:
        code, record = smoke(str(folder / "whole"))
        assert code == 0
        whole.update(adapters(open_store(str(folder / "whole")), record))
    return whole


def kills(folder: Path, stages: tuple[str, ...]) -> str:
    return ",".join(f"{stage}:{KILLS[stage]}:{folder / f'{stage}-killed'}" for stage in stages)


def committed_step(store: ConditionalStore, record: RunRecord, name: str) -> int:
    stage = stage_of(record, name)
    assert stage.key is not None
    return committed_points(store, StagePaths(stage.kind, stage.key))[0].step


def test_the_smoke_pipeline_runs_and_is_reused_whole(
    smoke: Smoke, whole: dict[str, dict[str, bytes]], module_places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = uninterrupted(whole, smoke, module_places)
    assert all({ARTIFACT_FILE} < set(found) for found in files.values())
    assert files["grpo"] != files["sft"], "no group was mixed: the smoke pipeline shows nothing of GRPO"
    capsys.readouterr()
    code, record = smoke(str(module_places / "whole"))
    assert code == 0
    assert {stage.outcome for stage in record.stages} == {"reused", "passed"}
    page = Path(capsys.readouterr().out.rpartition("report: ")[2].strip()).read_text()
    assert all(text in page for text in ("eval_base", "reward/mean", "loss/nll", "95% interval"))


@pytest.mark.slow
def test_killed_children_resume_in_the_next_run_and_end_in_the_same_bytes(
    smoke: Smoke,
    whole: dict[str, dict[str, bytes]],
    module_places: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = uninterrupted(whole, smoke, module_places)
    store = open_store(str(tmp_path / "store"))
    for stage, step in KILLS.items():
        monkeypatch.setenv("PROBE_KILL", kills(tmp_path, (stage,)))
        code, record = smoke(store.uri, "--until", "grpo")
        assert (code, stage_of(record, stage).outcome) == (1, "failed")
        committed = committed_step(store, record, stage)
        assert 0 < committed < step
        monkeypatch.delenv("PROBE_KILL")
        code, record = smoke(store.uri, "--until", stage)
        resumed = stage_of(record, stage)
        assert (code, resumed.outcome, resumed.first_step) == (0, "resumed", committed + 1)
    assert adapters(store, smoke(store.uri, "--until", "grpo")[1]) == files


def test_on_a_bucket_killed_children_resume_in_the_same_run_and_end_in_the_same_bytes(
    smoke: Smoke,
    whole: dict[str, dict[str, bytes]],
    module_places: Path,
    gcs_store_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = uninterrupted(whole, smoke, module_places)
    store = open_store(gcs_store_uri)
    monkeypatch.setenv("PROBE_KILL", kills(tmp_path, tuple(KILLS)))
    code, record = smoke(gcs_store_uri, "--set", "defaults.retry.max=1", "--set", "defaults.retry.delay=[0]")
    assert (code, record.outcome) == (0, "succeeded")
    for name, step in KILLS.items():
        stage = stage_of(record, name)
        assert (tmp_path / f"{name}-killed").exists()
        assert stage.outcome == "resumed"
        assert stage.first_step is not None
        assert 1 < stage.first_step <= step
        assert steps_by_epoch(store, stage)[2] == list(range(stage.first_step, (stage.last_step or 0) + 1))
    assert adapters(store, record) == files
    assert {stage.outcome for stage in smoke(gcs_store_uri)[1].stages} == {"reused", "passed"}


def steps_by_epoch(store: ConditionalStore, stage: RunStage) -> dict[int, list[int]]:
    """The steps that each attempt logged, whether or not a later attempt logged them again."""
    assert stage.key is not None
    found: dict[int, list[int]] = {}
    for listed in store.list(StagePaths(stage.kind, stage.key).attempts):
        if "/metrics/" in listed.path:
            stored = store.get(listed.path)
            assert stored is not None
            for line in stored.data.decode().splitlines():
                row = json.loads(line)
                found.setdefault(row["epoch"], []).append(row["step"])
    return found
