"""The history that `temper runs` tells from the archive in the store alone."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from stages.store.conditional import open_store
from stages.store.holder import this_holder
from stages.store.runs import RunRecord, RunStage, StageOutcome, write_run

PIPELINE = """\
version: 1
name: told
stages:
  data: {uses: prepare, with: {source: "reasoning_gym://chain_sum", num_train: 8, num_held_out: 4, seed: 1}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / ".temper").mkdir()
    path = tmp_path / "told.yaml"
    path.write_text(PIPELINE)
    return path


def record(file: Path, hour: int, *outcomes: StageOutcome, **fields: object) -> None:
    stages = tuple(RunStage(id=f"s{n}", kind="probe", outcome=outcome) for n, outcome in enumerate(outcomes))
    values = {
        "run_id": f"20260301T{hour:02d}0000Z-0000000{hour % 10}",
        "pipeline": "told",
        "profile": None,
        "argv": (),
        "started": f"2026-03-01T{hour:02d}:00:00+00:00",
        "stages": stages,
        **fields,
    }
    write_run(open_store(str(file.parent / ".temper" / "store")), RunRecord.model_validate(values))


@pytest.fixture
def history(file: Path) -> Path:
    finished = {"finished": "2026-03-01T03:02:05+00:00", "outcome": "failed", "profile": "tpu"}
    record(file, 3, "reused", "done", "reused", "failed", **finished, run_url="http://127.0.0.1:4200/runs/flow-run/x")
    dead = this_holder(None).model_copy(update={"pid": 2**22 + 1})
    record(file, 5, "running", "waiting", holder=dead)
    return file


def test_the_newest_run_comes_first_with_its_time_its_nodes_and_its_page(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(history)]) == 0
    heading, newest, oldest = capsys.readouterr().out.splitlines()
    assert heading.split() == ["started", "(UTC)", "outcome", "time", "stages", "and", "gates", "run"]
    assert newest.startswith("2026-03-01 05:00:00  failed ")
    assert "1 stopped, 1 skipped" in newest
    assert oldest.startswith("2026-03-01 03:00:00  failed (tpu)  2 min 05 s  2 reused, 1 done, 1 failed ")
    assert oldest.endswith(" 20260301T030000Z-00000003 http://127.0.0.1:4200/runs/flow-run/x")


def test_as_many_runs_are_shown_as_asked_for_and_json_is_one_record_a_line(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", str(history), "--limit", "1", "--json"]) == 0
    assert [json.loads(line)["run_id"] for line in capsys.readouterr().out.splitlines()] == [
        "20260301T050000Z-00000005"
    ]
    assert main(["runs", str(history), "--limit", "0", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_pipeline_that_never_ran_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(file)]) == 0
    assert capsys.readouterr().out.startswith("told was never run with the store ")


def test_a_limit_is_a_number(file: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", str(file), "--limit", "-1"])
    assert ended.value.code == 2
