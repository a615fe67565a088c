"""The shipped pipeline of a reward model: trained, measured, exported, and reused."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from flows.cli import main

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_reward_model_is_trained_measured_and_exported(
    prefect_api: str, probe_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("tiny", "recipes"):
        shutil.copytree(PIPELINES / folder, tmp_path / folder)
    file = str(shutil.copy(PIPELINES / "reward_model.yaml", tmp_path))
    (tmp_path / ".temper").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = ["--set", f"defaults.resources.python={probe_python}"]

    assert main(["run", file, *python]) == 0
    (report,) = (tmp_path / ".temper/store/v1/stages/reward_model").glob("*/attempts/*/out/report/artifact.json")
    metrics = json.loads(report.read_text())["metrics"]
    assert metrics["accuracy"] >= 0.9
    assert metrics["calibration_error"] < 0.2
    (model,) = (tmp_path / ".temper/store/v1/stages/export").glob("*/attempts/*/out/model")
    assert load_file(model / "model.safetensors")["score.weight"].shape == (1, 64)
    assert main(["plan", file, "--exit-code", *python]) == 0
