"""The stage process by itself: run by hand, without Prefect, and with requests that cannot be used."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.contract import StageRequest, StageResult
from stages.sources.resolve import resolve

ROOT = Path(__file__).parents[2]

PREPARE = {
    "source": "reasoning_gym://chain_sum?min_terms=2&max_terms=2&min_digits=1&max_digits=1",
    "num_train": 8,
    "num_held_out": 4,
    "seed": 1,
}


def write_request(folder: Path, **update: object) -> Path:
    request = StageRequest(
        stage_id="data",
        kind="prepare",
        version=1,
        key="ab" * 32,
        config=json.dumps(PREPARE),
        inputs={},
        sources=(resolve(str(PREPARE["source"]), folder),),
        store=str(folder / "store"),
        attempt="000001-hand",
        epoch=1,
        resume=(),
        scratch=str(folder / "scratch"),
        cache=str(folder / "cache"),
    ).model_dump(mode="json")
    file = folder / "request.json"
    file.write_text(json.dumps({**request, **update}))
    return file


def run_stage(request: Path, *, stdin: int | None = subprocess.DEVNULL) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stages", str(request)]
    return subprocess.run(command, stdin=stdin, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


def result_of(folder: Path) -> StageResult:
    return StageResult.model_validate_json((folder / "scratch" / "result.json").read_text())


def test_a_stage_runs_by_hand_and_says_how_far_it_is(tmp_path: Path) -> None:
    ended = run_stage(write_request(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"step (\d+) of \1 ", ended.stderr)
    result = result_of(tmp_path)
    assert result.outcome == "done"
    assert {file.path for file in result.outputs["train"]} == {"artifact.json", "data.jsonl"}
    stored = tmp_path / "store" / "v1/stages/prepare" / ("ab" * 32) / "attempts/000001-hand/out/train/data.jsonl"
    assert len(stored.read_text().splitlines()) == 8


def test_stages_run_where_prefect_is_not_installed(tmp_path: Path) -> None:
    block = "import sys; sys.modules['prefect'] = None; import runpy; runpy.run_module('stages', run_name='__main__')"
    command = [sys.executable, "-c", block, str(write_request(tmp_path))]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert result_of(tmp_path).outcome == "done"


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"kind": "cook"}, "unknown stage kind 'cook'"),
        ({"version": 99}, "wants version 99 of 'prepare', this installation has 1"),
        ({"epoch": "one"}, "no valid request"),
        ({"surprise": 1}, "no valid request"),
    ],
)
def test_a_request_that_cannot_be_used_is_the_users_error_without_a_traceback(
    update: dict[str, object], message: str, tmp_path: Path
) -> None:
    ended = run_stage(write_request(tmp_path, **update))
    assert ended.returncode == 65
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_settings_that_are_not_valid_are_the_users_error(tmp_path: Path) -> None:
    ended = run_stage(write_request(tmp_path, config=json.dumps({**PREPARE, "num_train": -1})))
    assert ended.returncode == 65
    assert result_of(tmp_path).outcome == "user_error"
    assert "Traceback" not in ended.stderr
    assert "num_train" in result_of(tmp_path).message


def test_a_store_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the store should be")
    ended = run_stage(write_request(tmp_path))
    assert ended.returncode == 74
    assert result_of(tmp_path).outcome == "storage"


def test_a_pipe_that_belongs_to_a_shell_is_no_life_line(tmp_path: Path) -> None:
    ended = run_stage(write_request(tmp_path), stdin=subprocess.PIPE)
    assert ended.returncode == 0, ended.stderr


def test_the_life_line_ends_a_process_whose_main_thread_never_returns_from_native_code() -> None:
    code = (
        "import ctypes, sys; from stages.lifeline import hold; assert hold(); "
        "assert sys.stdin.read() == ''; print('held', flush=True); ctypes.PyDLL(None).sleep(1000)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    time.sleep(0.3)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(5) == -9
    process.stdout.close()


def test_the_watcher_of_the_life_line_ends_with_its_process() -> None:
    code = "from stages.lifeline import hold; assert hold(); import os; print(os.getpgrp())"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdin is not None
    group = int(process.stdout.read())
    assert process.wait(10) == 0
    deadline = time.monotonic() + 5
    while _group_exists(group) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _group_exists(group)
    process.stdin.close()
    process.stdout.close()


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
