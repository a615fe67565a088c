"""What a run does about want of memory, crashes in a row and secrets, with real processes and a real server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stages.store.attempts import AttemptRecord, attempt_names, read_attempt
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.runs import RunRecord

RunFile = Callable[..., tuple[int, RunRecord]]
WritePipeline = Callable[..., Path]


def attempts(tmp_path: Path, record: RunRecord) -> list[AttemptRecord]:
    store, stage = open_store(str(tmp_path / "store")), record.stages[0]
    assert stage.key is not None
    paths = StagePaths(stage.kind, stage.key)
    records = [read_attempt(store, paths, name) for name in attempt_names(store, paths)]
    return [found for found in records if found is not None]


def test_retries_after_a_want_of_memory_take_smaller_settings_until_one_fits(
    run_file: RunFile, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline(
        "  one: {uses: probe, with: {width: 8, memory: 2}}\n",
        retry="{max: 3, delay: [0], jitter: 0, on: [oom], on_oom: {width: /2}}",
    )
    code, record = run_file(file)
    assert (code, record.stages[0].outcome) == (0, "done")
    made = attempts(tmp_path, record)
    assert [one.cause for one in made] == ["oom", "oom", ""]
    assert [one.lowered for one in made] == [{}, {"width": 4}, {"width": 2}]
    assert {one.run_id for one in made} == {record.run_id}


def test_a_stage_that_crashes_at_one_step_is_given_up_before_its_retries_are_used_up(
    run_file: RunFile, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline(
        "  one: {uses: probe, with: {num_steps: 5, fault: sigkill, fault_at: 4}}\n",
        retry="{max: 9, delay: [0], jitter: 0, on: [infra]}",
    )
    code, record = run_file(file)
    assert (code, record.stages[0].outcome) == (1, "failed")
    assert "3 attempts in a row failed after step 3, one of them without the saved step 3" in record.stages[0].message
    assert len(attempts(tmp_path, record)) == 3


def test_a_secret_of_the_file_is_known_to_the_stage_alone(
    run_file: RunFile,
    write_pipeline: WritePipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMPER_SECRET_HF_TOKEN", "hf_very_secret")
    stage = "{uses: probe, with: {show: HF_TOKEN, fault: bug}, resources: {env: {HF_TOKEN: 'secret://hf-token'}}}"
    code, record = run_file(write_pipeline(f"  one: {stage}\n"))
    assert code == 1
    assert record.stages[0].message.startswith("bug: ValueError: a bug ***")
    kept = [file.read_text() for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert any("HF_TOKEN is ***" in text for text in kept)
    assert not any("hf_very_secret" in text for text in [*kept, *capsys.readouterr()])
