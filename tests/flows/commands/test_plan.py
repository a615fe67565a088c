import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli import main
from pipelines.spec.load import load_pipeline
from pipelines.spec.plan import make_plan
from stages.store.conditional import open_store
from stages.store.manifest import Manifest
from stages.store.provenance import Provenance
from stages.store.records import encode

PIPELINE = """\
version: 1
name: tiny
store: store
stages:
  data:
    uses: prepare
    with: {source: rows.jsonl, num_train: 8, num_held_out: 4, seed: 7}
"""
NOWHERE = Provenance(argv=(), git_revision=None, packages={}, host="here", python="3", system="test")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "rows.jsonl").write_text("{}\n")
    file = tmp_path / "tiny.yaml"
    file.write_text(PIPELINE)
    return file


@pytest.fixture
def plan(file: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`temper plan`, with the exit code that it should have."""

    def plan(*arguments: str, code: int = 0) -> str:
        assert main(["plan", str(file), *arguments]) == code
        return capsys.readouterr().out

    return plan


@pytest.fixture
def committed(file: Path) -> None:
    """The only stage is committed, without files."""
    pipeline = load_pipeline(file)
    store = open_store(pipeline.store)
    planned = make_plan(pipeline, store).nodes["data"]
    assert planned.key is not None
    manifest = Manifest(
        stage="prepare",
        key=planned.key,
        version=1,
        attempt="000001-a",
        epoch=1,
        outputs={},
        numbers={},
        inputs={},
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        provenance=NOWHERE,
    )
    store.create(manifest.paths.manifest, encode(manifest))


def test_the_exit_code_tells_whether_there_is_work_when_asked(plan: Callable[..., str]) -> None:
    assert plan("--exit-code", code=10).startswith("data  run  ")
    plan()


@pytest.mark.usefixtures("committed")
def test_nothing_to_do_exits_with_0(plan: Callable[..., str]) -> None:
    assert plan("--exit-code", "--verify", "deep").startswith("data  reuse  ")
    assert "cache refresh: data runs again in each run" in plan("--refresh", "data", "--exit-code", code=10)


@pytest.mark.usefixtures("committed")
def test_json_has_all_that_the_text_has(plan: Callable[..., str]) -> None:
    told = json.loads(plan("--json"))
    assert (told["has_work"], told["has_effects"], told["aliases"]) == (False, False, {})
    assert told["estimate"]["num_reused"] == 1
    assert told["nodes"][0]["decision"] == "reuse"
