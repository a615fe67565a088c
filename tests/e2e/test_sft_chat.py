"""The shipped pipeline of conversations: learnt, measured on others, exported, and reused."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from flows.cli import main

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_conversations_are_learnt_and_the_model_is_exported(
    prefect_api: str, probe_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("tiny", "recipes"):
        shutil.copytree(PIPELINES / folder, tmp_path / folder)
    file = str(shutil.copy(PIPELINES / "sft_chat.yaml", tmp_path))
    (tmp_path / ".temper").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = ["--set", f"defaults.resources.python={probe_python}"]

    assert main(["run", file, *python]) == 0
    (report,) = (tmp_path / ".temper/store/v1/stages/sft").glob("*/attempts/*/out/report/artifact.json")
    metrics = json.loads(report.read_text())["metrics"]
    assert metrics["rows"] == 40 * 32
    # Two or three replies of one or two digits and an end token each: nothing else is learnt.
    assert 2 * 2 * metrics["rows"] <= metrics["tokens"] <= 3 * 3 * metrics["rows"]
    (model,) = (tmp_path / ".temper/store/v1/stages/export").glob("*/attempts/*/out/model")
    assert load_file(model / "model.safetensors")
    assert main(["plan", file, "--exit-code", *python]) == 0
