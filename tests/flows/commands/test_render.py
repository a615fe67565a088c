import json
from pathlib import Path

import pytest

from flows.cli import main

SMOKE = str(Path(__file__).parents[3] / "pipelines" / "smoke.yaml")


def test_the_resolved_pipeline_is_printed_with_the_place_of_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", SMOKE, "--set", "params.seed=3"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "seed: 3  # --set params.seed=3" in lines
    assert f"name: smoke  # {SMOKE}:3" in lines
    assert "on_conflict: wait  # default" in lines


def test_it_is_printed_as_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", SMOKE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pipeline"]["name"] == "smoke"
    assert found["origins"]["name"] == f"{SMOKE}:3"


def test_what_is_no_pipeline_is_told_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", SMOKE, "--set", "stages.sft.with.num_steps=x"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("--set stages.sft.with.num_steps=x: ")
