"""Whole runs: what is retried, reused, resumed, skipped and repaired, with a real server and real processes."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from flows.cli import main
from stages.store.attempts import attempt_names, read_attempt
from stages.store.conditional import ConditionalStore, open_store
from stages.store.layout import StagePaths
from stages.store.manifest import read_manifest
from stages.store.runs import RunRecord, RunStage

RunFile = Callable[..., tuple[int, RunRecord]]
WritePipeline = Callable[..., Path]

PROBE = "  one: {{uses: probe, with: {{{settings}}}}}\n"


def outcomes(record: RunRecord) -> dict[str, str]:
    return {stage.id: stage.outcome for stage in record.stages}


def stage_of(record: RunRecord, name: str) -> RunStage:
    return next(stage for stage in record.stages if stage.id == name)


def attempts(store: ConditionalStore, stage: RunStage) -> list[tuple[str, str]]:
    assert stage.key is not None
    paths = StagePaths(stage.kind, stage.key)
    records = [read_attempt(store, paths, name) for name in attempt_names(store, paths)]
    return [(record.outcome, record.cause) for record in records if record is not None]


@pytest.fixture
def store(tmp_path: Path) -> ConditionalStore:
    return open_store(str(tmp_path / "store"))


def task_states(address: str) -> dict[str, str]:
    """Name of the newest task run of each stage to the name of its state."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        runs = sorted(client.read_task_runs(limit=200), key=lambda run: run.start_time or run.created)  # type: ignore[type-var, return-value]
    return {run.name.partition(" ")[0]: run.state.name for run in runs if run.state is not None and run.state.name}


def logged(address: str, record: RunRecord) -> set[str]:
    """The messages that the server has of a run, once it has those of its stages."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

    assert record.run_url is not None
    only = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[UUID(record.run_url.rpartition("/")[2])]))
    messages: set[str] = set()
    deadline = time.monotonic() + 20
    while "start after step 0" not in messages and time.monotonic() < deadline:
        time.sleep(0.2)
        with get_client(sync_client=True) as client:
            messages = {log.message for log in client.read_logs(only)}
    return messages


def test_a_chain_runs_and_the_second_run_reuses_it_with_states_that_say_so(
    run_file: RunFile, write_pipeline: WritePipeline, prefect_api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline(
        "  chain_a: {uses: probe, with: {num_steps: 2}}\n"
        "  chain_b:\n    uses: probe_consumer\n    inputs: {report: '${stages.chain_a.outputs.report}'}\n    with: {}\n"
    )
    code, record = run_file(file)
    assert (code, record.outcome) == (0, "succeeded")
    assert outcomes(record) == {"chain_a": "done", "chain_b": "done"}
    assert (stage_of(record, "chain_a").first_step, stage_of(record, "chain_a").last_step) == (1, 2)
    assert {name: task_states(prefect_api)[name] for name in outcomes(record)} == {
        "chain_a": "Committed",
        "chain_b": "Committed",
    }
    assert "start after step 0" in logged(prefect_api, record)
    code, record = run_file(file)
    assert (code, outcomes(record)) == (0, {"chain_a": "reused", "chain_b": "reused"})
    assert {name: task_states(prefect_api)[name] for name in outcomes(record)} == {
        "chain_a": "Reused",
        "chain_b": "Reused",
    }
    assert "report: " in capsys.readouterr().out


def test_a_cause_in_retry_on_is_tried_again_and_resumes_after_the_committed_step(
    run_file: RunFile, write_pipeline: WritePipeline, store: ConditionalStore, tmp_path: Path, prefect_api: str
) -> None:
    settings = f"num_steps: 4, fault: sigkill, fault_at: 3, fault_once: {tmp_path / 'once'}"
    file = write_pipeline(
        f"  killed: {{uses: probe, with: {{{settings}}}}}\n", retry="{max: 1, delay: [0], on: [infra]}"
    )
    code, record = run_file(file)
    stage = stage_of(record, "killed")
    assert (code, stage.outcome, stage.first_step, stage.last_step) == (0, "resumed", 3, 4)
    assert attempts(store, stage) == [("failed", "infra"), ("committed", "")]
    assert task_states(prefect_api)["killed"] == "Resumed"


@pytest.mark.parametrize("cause", ["user_error", "bug", "storage"])
def test_a_cause_that_is_not_in_retry_on_fails_at_once(
    cause: str, run_file: RunFile, write_pipeline: WritePipeline, store: ConditionalStore
) -> None:
    file = write_pipeline(
        f"  one: {{uses: probe, with: {{fault: {cause}}}}}\n", retry="{max: 3, delay: [0], on: [infra, oom]}"
    )
    code, record = run_file(file)
    assert (code, record.outcome, record.message) == (1, "failed", "one")
    assert stage_of(record, "one").message.startswith(f"{cause}: ")
    assert attempts(store, stage_of(record, "one")) == [("failed", cause)]


def test_preemptions_have_their_own_budget(
    run_file: RunFile, write_pipeline: WritePipeline, store: ConditionalStore, tmp_path: Path
) -> None:
    settings = f"fault: preempted, fault_once: {tmp_path / 'once'}"
    file = write_pipeline(f"  one: {{uses: probe, with: {{{settings}}}}}\n", retry="{max: 0, preempted: {max: 1}}")
    code, record = run_file(file)
    assert (code, outcomes(record)) == (0, {"one": "resumed"})
    assert attempts(store, stage_of(record, "one")) == [("preempted", "preempted"), ("committed", "")]


def test_independent_branches_go_on_after_a_failure_and_what_needed_it_is_skipped(
    run_file: RunFile, write_pipeline: WritePipeline
) -> None:
    file = write_pipeline(
        "  bad: {uses: probe, with: {fault: bug}}\n"
        "  after: {uses: probe_consumer, inputs: {report: '${stages.bad.outputs.report}'}, with: {}}\n"
        "  other: {uses: probe, with: {seed: 5}}\n"
    )
    code, record = run_file(file)
    assert (code, outcomes(record)) == (1, {"bad": "failed", "after": "skipped", "other": "done"})
    assert stage_of(record, "after").message == "bad: failed"


GATED = (
    "  first: {{uses: probe, with: {{num_steps: 2}}}}\n"
    "  gate: {{gate: eval, inputs: {{report: '${{stages.first.outputs.report}}'}}, "
    "require: ['{require}'], on_fail: {on_fail}}}\n"
    "  gated: {{uses: probe, needs: [gate], with: {{seed: 7}}}}\n"
)


def test_a_gate_that_passes_lets_its_followers_run(run_file: RunFile, write_pipeline: WritePipeline) -> None:
    code, record = run_file(write_pipeline(GATED.format(require="total >= 3", on_fail="stop")))
    assert (code, outcomes(record)) == (0, {"first": "done", "gate": "passed", "gated": "done"})
    assert stage_of(record, "gate").lines == ("passed: total >= 3 (total = 3)",)


@pytest.mark.parametrize(("on_fail", "code"), [("stop", 1), ("skip_downstream", 0)])
def test_a_gate_that_does_not_pass_holds_its_followers_back(
    on_fail: str, code: int, run_file: RunFile, write_pipeline: WritePipeline
) -> None:
    exit_code, record = run_file(write_pipeline(GATED.format(require="total > 3", on_fail=on_fail)))
    assert exit_code == code
    assert outcomes(record) == {"first": "done", "gate": "failed", "gated": "skipped"}
    assert stage_of(record, "gate").lines == ("failed: total > 3 (total = 3)",)


def test_a_corrupt_input_is_made_again_and_its_reader_runs_again_in_the_same_run(
    run_file: RunFile, write_pipeline: WritePipeline, store: ConditionalStore, tmp_path: Path
) -> None:
    file = write_pipeline(
        "  maker: {uses: probe, with: {num_steps: 2}}\n"
        "  reader: {uses: probe_consumer, inputs: {report: '${stages.maker.outputs.report}'}, with: {}}\n"
    )
    assert run_file(file, "--only", "maker")[0] == 0
    stage = stage_of(run_file(file, "--only", "maker")[1], "maker")
    assert stage.key is not None
    manifest = read_manifest(store, StagePaths("probe", stage.key))
    assert manifest is not None
    rows = Path(store.location(f"{manifest.output_folder('report')}/rows.json"))
    status = rows.stat()
    rows.chmod(0o644)
    rows.write_bytes(bytes(len(rows.read_bytes())))
    os.utime(rows, ns=(status.st_atime_ns, status.st_mtime_ns))
    code, record = run_file(file)
    assert (code, record.outcome) == (0, "succeeded")
    assert outcomes(record) == {"maker": "resumed", "reader": "done"}
    again = read_manifest(store, StagePaths("probe", stage.key))
    assert again is not None
    assert again.attempt != manifest.attempt


def test_a_bug_of_the_run_itself_is_not_kept_quiet(
    run_file: RunFile, write_pipeline: WritePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_folder: Path) -> None:
        raise RuntimeError("a bug of the run")

    monkeypatch.setattr("flows.pipeline.sweep", fail)
    with pytest.raises(RuntimeError, match="a bug of the run"):
        run_file(write_pipeline("  one: {uses: probe, with: {}}\n"))


def test_status_logs_and_report_tell_about_the_latest_run(
    run_file: RunFile, write_pipeline: WritePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {}}\n  two: {uses: probe, with: {fault: bug, seed: 2}}\n")
    run_file(file)
    capsys.readouterr()
    assert main(["status", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "probes failed: two" in shown
    assert "bug: ValueError: a bug; saved step 1" in shown
    assert main(["logs", str(file), "one"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("INFO stages: one: stage probe, attempt 000001-")
    assert printed[1] == "start after step 0"
    assert printed[2].startswith("INFO stages: done: checkpoint ")
    assert main(["logs", str(file)]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("==>")]
    assert headings == ["==> one <==", "==> two <=="]
    assert main(["report", str(file)]) == 0
    assert "ValueError: a bug" in Path(capsys.readouterr().out.strip()).read_text()


def test_force_runs_a_committed_stage_again_and_what_follows_from_it(
    run_file: RunFile, write_pipeline: WritePipeline
) -> None:
    file = write_pipeline(
        "  maker: {uses: probe, with: {}}\n"
        "  reader: {uses: probe_consumer, inputs: {report: '${stages.maker.outputs.report}'}, with: {}}\n"
    )
    run_file(file)
    assert outcomes(run_file(file, "--force", "maker")[1]) == {"maker": "done", "reader": "done"}
    assert outcomes(run_file(file)[1]) == {"maker": "reused", "reader": "reused"}
