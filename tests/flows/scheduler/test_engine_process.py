"""The process of a run as a job of Kubernetes has it: with no `temper up` around, and taken away in the middle."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.states import Pending
from scheduled import engine_python, long_probe, wait_until

from flows.scheduler.deployment import Request, deploy
from flows.scheduler.pool import COMMAND, ensure_pool
from pipelines.spec.load import load_pipeline
from stages.store.conditional import open_store
from stages.store.runs import latest_run

WritePipeline = Callable[..., Path]


@pytest.mark.slow
@pytest.mark.usefixtures("probe_kinds", "own_places")
def test_a_run_whose_machine_is_taken_away_saves_and_waits_and_another_process_goes_on_with_it(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    ensure_pool(up_client, "jobs")
    pipeline = load_pipeline(write_pipeline(long_probe(tmp_path)))
    deployment = deploy(up_client, Request(pipeline, (), "job", "jobs", False)).id
    run = up_client.create_flow_run_from_deployment(deployment)
    folder = tmp_path / "engine"
    folder.mkdir()
    environment = {
        **os.environ,
        "PREFECT__FLOW_RUN_ID": str(run.id),
        "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule",
        "PATH": f"{engine_python(folder).parent}{os.pathsep}{os.environ['PATH']}",
    }
    up_client.set_flow_run_state(run.id, Pending())
    first = subprocess.Popen(COMMAND.split(), env=environment)
    wait_until(lambda: any((tmp_path / "store").rglob("*.commit.json")), 90)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    assert up_client.read_flow_run(run.id).state_name == "AwaitingRetry"
    assert subprocess.run(COMMAND.split(), env=environment, check=False).returncode == 0
    assert up_client.read_flow_run(run.id).state_name == "Completed"
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    assert (record.stages[0].outcome, record.stages[0].last_step) == ("resumed", 8)
