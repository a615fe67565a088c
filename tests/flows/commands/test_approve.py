"""`temper approve`, for runs that no worker can start again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli import main
from pipelines.spec.load import load_pipeline
from stages.store.approvals import read_approval
from stages.store.conditional import open_store
from stages.store.runs import RunRecord

RunFile = Callable[..., tuple[int, RunRecord]]
WritePipeline = Callable[..., Path]

GATED = (
    "  first: {uses: probe, with: {num_steps: 2}}\n"
    "  ask: {gate: human, needs: [first], ask: {approvers: [ml-leads], timeout: 7d}}\n"
    "  after: {uses: probe, needs: [ask], with: {seed: 7}}\n"
)

pytestmark = pytest.mark.usefixtures("probe_kinds")


def outcomes(record: RunRecord) -> dict[str, str]:
    return {stage.id: stage.outcome for stage in record.stages}


def test_a_run_without_a_worker_ends_and_says_how_to_approve_and_the_next_one_goes_on(
    run_file: RunFile, write_pipeline: WritePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline(GATED)
    code, record = run_file(file)
    assert (code, record.outcome, record.message) == (3, "waiting_approval", "ask")
    assert main(["approve", str(file), "ask", "--by", "Ada"]) == 0
    assert f"run again to go on: temper run {file}" in capsys.readouterr().out
    code, record = run_file(file)
    assert (code, outcomes(record)) == (0, {"first": "reused", "ask": "passed", "after": "done"})
    assert main(["approve", str(file), "ask", "--by", "Grace", "--reject"]) == 0
    code, record = run_file(file)
    assert (code, outcomes(record)["ask"], outcomes(record)["after"]) == (1, "failed", "skipped")


def test_a_gate_that_asks_nobody_or_nothing_yet_cannot_be_approved(
    write_pipeline: WritePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline(GATED)
    assert main(["approve", str(file), "ask"]) == 2
    assert main(["approve", str(file), "first"]) == 2
    told = capsys.readouterr().err
    assert "first is not committed yet: there is nothing to decide about" in told
    assert "first: no gate that asks a person; gates that do: ask" in told


def test_an_answer_is_about_what_the_waiting_run_has_made_for_itself(
    run_file: RunFile, write_pipeline: WritePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline(GATED)
    _, record = run_file(file, "--refresh", "first")
    capsys.readouterr()
    assert main(["approve", str(file), "ask", "--by", "Ada"]) == 0
    told = capsys.readouterr().out
    assert str(record.stages[0].key)[:16] in told
    assert f"run {record.run_id} cannot be resumed from here, and a new one asks again: it makes first anew" in told
    approval = read_approval(open_store(load_pipeline(file).store), str(record.stages[1].key))
    assert approval is not None
    assert approval.stages == {"first": record.stages[0].key}
