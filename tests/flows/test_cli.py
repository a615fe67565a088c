"""The command's words and exit codes, without a scheduler."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.cli import main

DATA = """\
version: 1
name: data-only
stages:
  data:
    uses: prepare
    with:
      source: "reasoning_gym://chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1"
      num_train: 8
      num_held_out: 4
      seed: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / ".temper").mkdir()
    path = tmp_path / "data.yaml"
    path.write_text(DATA)
    return path


def test_help_tells_the_exit_codes_and_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("exit codes", "130", "PREFECT_API_URL", "examples", "resume"))


@pytest.mark.parametrize("arguments", [[], ["bake"], ["run"], ["plan", "x.yaml", "--colour"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("command", ["validate", "plan", "run", "status", "logs", "report"])
def test_a_bad_file_is_one_line_on_stderr_and_exit_code_2(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(DATA.replace("num_train: 8", "num_train: many"))
    assert main([command, str(file)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"{file}:8:7: stages.data.with.num_train: ")
    assert len(shown.err.splitlines()) == 1


def test_plan_answers_with_a_table_json_and_an_exit_code(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(file)]) == 0
    assert "never run" in capsys.readouterr().out
    assert main(["plan", str(file), "--json", "--exit-code"]) == 10
    assert json.loads(capsys.readouterr().out)["has_work"] is True


def test_an_unknown_stage_is_bad_usage(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(file), "--only", "sft"]) == 2
    assert "sft" in capsys.readouterr().err


def test_a_wrong_stage_to_force_is_told_before_a_server_is_started(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert main(["run", str(file), "--force", "dta"]) == 2
    assert capsys.readouterr() == ("", "--force dta: no stage of data-only (did you mean `data`?)\n")


def test_a_pipeline_that_never_ran_has_no_status(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(file)]) == 2
    assert "data-only was never run" in capsys.readouterr().err


def test_a_store_that_cannot_be_read_is_exit_code_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "blocked").write_text("")
    assert main(["plan", str(file), "--set", f"store={file.parent / 'blocked' / 'store'}"]) == 1
    assert "blocked" in capsys.readouterr().err


def test_a_run_that_reuses_everything_is_quick_and_starts_no_server(
    file: Path, prefect_api: str, own_places: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", str(file)]) == 0
    monkeypatch.delenv("PREFECT_API_URL")
    code = (
        "import sys; from flows.cli import main; code = main(sys.argv[1:]); "
        "assert 'prefect' not in sys.modules; sys.exit(code)"
    )
    started = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code, "run", str(file)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - started < 5
    assert "reused" in ended.stdout
    assert not (file.parent / ".temper" / "prefect").exists()
    assert main(["plan", str(file), "--exit-code"]) == 0


def test_an_option_may_stand_between_the_words_of_a_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", str(file), "--set", "stages.data.with.seed=2", "data"]) == 2
    assert "was never run" in capsys.readouterr().err
