"""The shipped sweep: fanned out, chosen, gated, approved by a person, named, and reused."""

import shutil
from pathlib import Path

import pytest

from flows.cli import main
from stages.store.aliases import read_alias
from stages.store.conditional import open_store
from stages.store.runs import RunRecord, latest_run

PIPELINES = Path(__file__).parents[2] / "pipelines"
WAITING_APPROVAL = 3


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the pipeline in a project of its own."""
    shutil.copytree(PIPELINES / "tiny", tmp_path / "tiny")
    shutil.copy(PIPELINES / "sweep.yaml", tmp_path)
    (tmp_path / ".temper").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "sweep.yaml"


def record_of(file: Path) -> RunRecord:
    record = latest_run(open_store(str(file.parent / ".temper" / "store")), "sweep")
    assert record is not None
    return record


def outcomes(file: Path) -> dict[str, str]:
    return {stage.id: stage.outcome for stage in record_of(file).stages}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_better_of_two_is_chosen_and_named_once_a_person_agrees(
    prefect_api: str, probe_python: str, sweep: Path
) -> None:
    python = ["--set", f"defaults.resources.python={probe_python}"]
    approved = ["--profile", "approved"]
    store = open_store(str(sweep.parent / ".temper" / "store"))

    assert main(["run", str(sweep), *approved, *python]) == WAITING_APPROVAL
    assert outcomes(sweep)["approve"] == "waiting_approval"
    assert read_alias(store, "sweep-best") is None

    assert main(["approve", str(sweep), "approve", *approved, "--by", "a tester"]) == 0
    assert main(["run", str(sweep), *approved, *python]) == 0
    found = read_alias(store, "sweep-best")
    assert found is not None
    alias = found[0]
    chosen = {stage.key for stage in record_of(sweep).stages if stage.id.startswith("sft[")}
    assert alias.checkpoint.key in chosen
    assert alias.report is not None

    trained = [f"sft[learning_rate={rate}]" for rate in (0.001, 0.01)]
    assert {outcomes(sweep)[stage] for stage in ("data", *trained)} == {"reused"}
    assert main(["plan", str(sweep), "--exit-code", *python]) == 0
