"""The shipped pipeline of supervised fine-tuning and DPO: trained, measured on other pairs, and reused."""

import json
import shutil
from pathlib import Path

import pytest

from flows.cli import main

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_learns_conversations_and_then_preferences(
    prefect_api: str, probe_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("tiny", "recipes"):
        shutil.copytree(PIPELINES / folder, tmp_path / folder)
    file = str(shutil.copy(PIPELINES / "sft_dpo.yaml", tmp_path))
    (tmp_path / ".temper").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = ["--set", f"defaults.resources.python={probe_python}"]

    assert main(["run", file, *python]) == 0
    (report,) = (tmp_path / ".temper/store/v1/stages/evaluation").glob("*/attempts/*/out/report/artifact.json")
    metrics = json.loads(report.read_text())["metrics"]
    assert metrics["accuracy"] >= 0.8
    assert metrics["mean_margin"] > 0.0
    assert main(["plan", file, "--exit-code", *python]) == 0
