"""Runs of a real worker that are started again, cancelled, or whose process is asked to end."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.states import Cancelling, Scheduled
from scheduled import deploy_file, wait_for_state, wait_until

from flows.scheduler.up import RunningUp
from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.progress import committed_points
from stages.store.runs import RunRecord, latest_run, list_runs

WritePipeline = Callable[..., Path]
LONG = "  first: {{uses: probe, with: {{num_steps: 400, step_seconds: 0.25, pids: '{pids}'}}}}\n"

pytestmark = pytest.mark.usefixtures("probe_kinds")


def latest(tmp_path: Path) -> RunRecord:
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    return record


def task_states(client: SyncPrefectClient, flow_run: UUID) -> list[tuple[str, str]]:
    """Names of all task runs and of their states, in the order of their start."""
    only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    runs = client.read_task_runs(flow_run_filter=only)
    runs.sort(key=lambda run: str(run.start_time or run.created))
    return [(run.name.partition(" ")[0], run.state_name or "") for run in runs]


def artifact(client: SyncPrefectClient, flow_run: UUID, key: str) -> str:
    """The newest one of a key."""
    only = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run]))
    found = [one for one in client.read_artifacts(artifact_filter=only) if one.key == key]
    return str(max(found, key=lambda one: str(one.created)).data)


def is_gone(process: int) -> bool:
    """Whether it has ended; one that nobody has waited for counts."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def start_long(client: SyncPrefectClient, write: WritePipeline, folder: Path, name: str) -> tuple[UUID, list[int]]:
    """A run that works on a stage, and the processes of that."""
    pids = folder / "pids"
    file = write(LONG.format(pids=pids))
    flow_run = client.create_flow_run_from_deployment(deploy_file(client, file, name)).id
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    wait_until(lambda: saved_steps(folder) > 0)
    return flow_run, [int(text) for text in pids.read_text().split()]


def saved_steps(folder: Path) -> int:
    store = open_store(str(folder / "store"))
    (stage,) = latest(folder).stages
    assert stage.key is not None
    points = committed_points(store, StagePaths(stage.kind, stage.key))
    return points[0].step if points else 0


def test_a_retry_goes_on_with_the_record_of_the_run_and_makes_nothing_again_that_is_committed(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline(
        "  good: {uses: probe, with: {num_steps: 2}}\n"
        f"  bad: {{uses: probe, with: {{seed: 3, fault: bug, fault_once: {tmp_path / 'once'}}}}}\n"
        "  after: {uses: probe_consumer, inputs: {report: '${stages.bad.outputs.report}'}, with: {}}\n"
    )
    run = up_client.create_flow_run_from_deployment(deploy_file(up_client, file, "retried")).id
    assert wait_for_state(up_client, run, "Completed", "Failed", "Crashed").state_name == "Failed"
    failed = latest(tmp_path)
    assert f"temper logs {file} bad" in artifact(up_client, run, "probes-next-steps")
    up_client.set_flow_run_state(run, Scheduled(), force=True)
    assert wait_for_state(up_client, run, "Completed", "Crashed").state_name == "Completed"
    record = latest(tmp_path)
    assert list_runs(open_store(str(tmp_path / "store")), "probes") == [failed.run_id] == [record.run_id]
    assert [(stage.id, stage.outcome) for stage in record.stages] == [
        ("good", "done"),
        ("bad", "resumed"),
        ("after", "done"),
    ]
    assert record.stages[0].seconds == failed.stages[0].seconds
    states = task_states(up_client, run)
    assert sorted(states[:3]) == [("after", "Skipped"), ("bad", "Failed"), ("good", "Committed")]
    assert sorted(states[3:]) == [("after", "Committed"), ("bad", "Resumed"), ("good", "Reused")]
    rows = json.loads(artifact(up_client, run, "probes-stages"))
    assert [(row["node"], row["state"]) for row in rows] == [("good", "done"), ("bad", "resumed"), ("after", "done")]
    assert "/manifest.json" in rows[0]["result"]


def test_a_run_that_is_cancelled_saves_and_leaves_no_process(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    run, processes = start_long(up_client, write_pipeline, tmp_path, "cancelled")
    up_client.set_flow_run_state(run, Cancelling())
    assert wait_for_state(up_client, run, "Cancelled", "Crashed", "Completed").state_name == "Cancelled"
    wait_until(lambda: all(map(is_gone, processes)), seconds=15)
    wait_until(lambda: latest(tmp_path).outcome == "stopped", seconds=15)
    assert [stage.outcome for stage in latest(tmp_path).stages] == ["stopped"]
    assert saved_steps(tmp_path) > 0
    assert task_states(up_client, run) == [("first", "Cancelled")]


@pytest.mark.slow
def test_a_run_whose_process_is_asked_to_end_is_handed_back_and_goes_on(
    prefect_up: RunningUp, up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    run, processes = start_long(up_client, write_pipeline, tmp_path, "handed-back")
    before = latest(tmp_path)
    for engine in prefect_up.runs():
        os.kill(engine, signal.SIGTERM)
    wait_until(lambda: all(map(is_gone, processes)))
    wait_until(lambda: len(task_states(up_client, run)) == 2)
    assert latest(tmp_path).run_id == before.run_id
    up_client.set_flow_run_state(run, Cancelling())
    assert wait_for_state(up_client, run, "Cancelled", "Crashed", "Completed").state_name == "Cancelled"
