"""The shipped pipeline of a student and its teacher: scored, learnt, learnt on its own replies, and reused."""

import json
import shutil
from pathlib import Path

import pytest

from flows.cli import main

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_student_learns_from_its_teacher_before_and_while_it_speaks(
    prefect_api: str, probe_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PIPELINES / "tiny", tmp_path / "tiny")
    file = str(shutil.copy(PIPELINES / "distill.yaml", tmp_path))
    (tmp_path / ".temper").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = ["--set", f"defaults.resources.python={probe_python}"]

    assert main(["run", file, *python]) == 0
    reports = (tmp_path / ".temper/store/v1/stages/distillation").glob("*/attempts/*/out/report/artifact.json")
    metrics = [json.loads(report.read_text())["metrics"] for report in reports]
    (evaluated,) = [found for found in metrics if "validation_loss" in found]
    assert evaluated["validation_loss"] < 0.5
    assert evaluated["step"] == 10
    assert main(["plan", file, "--exit-code", *python]) == 0
