"""Deployments of pipelines of probes, and waiting for their runs."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun

from flows.scheduler.deployment import Request, deploy
from pipelines.spec.load import load_pipeline

ENGINE = Path(__file__).with_name("engine_python.py")


def engine_python(folder: Path) -> Path:
    """An interpreter for a worker's runs that knows the probe."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {ENGINE} "$@"\n')
    script.chmod(0o755)
    return script


def deploy_file(client: SyncPrefectClient, file: Path, name: str) -> UUID:
    """Id of the deployment of a pipeline file."""
    return deploy(client, Request(load_pipeline(file), (), name, "temper", False)).id


def runs_of(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    """Runs of a deployment that were due, first due first."""
    only = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
    runs = [run for run in client.read_flow_runs(deployment_filter=only) if run.state_name != "Scheduled"]
    return sorted(runs, key=lambda run: str(run.expected_start_time))


def wait_for_state(client: SyncPrefectClient, flow_run: UUID, *names: str, seconds: float = 90) -> FlowRun:
    """The run as soon as the name of its state is one of these."""
    run = client.read_flow_run(flow_run)

    def is_there() -> bool:
        nonlocal run
        run = client.read_flow_run(flow_run)
        return run.state_name in names

    wait_until(is_there, seconds)
    return run


def wait_until(is_there: Callable[[], bool], seconds: float = 60) -> None:
    """Return once it is."""
    deadline = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.3)


def long_probe(tmp_path: Path) -> str:
    """A stage that takes 12 s, saves each step, and leaves ids of its processes in the file `pids`."""
    settings = f"num_steps: 8, step_seconds: 1.5, pids: {tmp_path / 'pids'}"
    return f"  one: {{uses: probe, with: {{{settings}}}}}\n"


def start_run(client: SyncPrefectClient, file: Path, tmp_path: Path) -> FlowRun:
    """A run that has saved something."""
    run = client.create_flow_run_from_deployment(deploy_file(client, file, "long"))
    wait_until(lambda: any((tmp_path / "store").rglob("*.commit.json")), 120)
    return run
