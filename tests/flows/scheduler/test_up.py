"""`temper up` as a process: what becomes of its runs when it, its worker or one of them ends, however that happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun
from running_up import Running, is_alive
from scheduled import deploy_file, long_probe, runs_of, start_run, wait_for_state, wait_until

from stages.store.conditional import open_store
from stages.store.runs import RunRecord, latest_run

WritePipeline = Callable[..., Path]
StartUp = Callable[[], Running]

ZOMBIE_SECONDS = 240

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("probe_kinds", "own_places"), pytest.mark.timeout(600)]


@pytest.fixture
def start_up(tmp_path: Path, own_places: None) -> Iterator[StartUp]:
    started: list[Running] = []

    def start() -> Running:
        started.append(Running(tmp_path, ["--port", "0"], {}))
        return started[-1]

    yield start
    for running in started:
        running.kill()


def latest(tmp_path: Path) -> RunRecord:
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    return record


def test_killed_it_leaves_nothing_behind_and_its_run_crashes_and_goes_on_when_it_is_run_again(
    start_up: StartUp, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline(long_probe(tmp_path))
    first = start_up()
    with first.client() as client:
        lost = start_run(client, file, tmp_path)
    stages = [int(line) for line in (tmp_path / "pids").read_text().split()]
    left = {*first.descendants(), *stages}
    assert len(left) >= 5, "server, worker, engine, stage and what the stage started"
    first.kill()
    wait_until(lambda: not any(map(is_alive, left)), 10)
    assert not first.descendants()
    second = start_up()
    with second.client() as client:
        crashed = wait_for_state(client, lost.id, "Crashed", seconds=ZOMBIE_SECONDS)
        assert crashed.state is not None
        assert crashed.state.message is not None
        assert "its process is gone" in crashed.state.message
        assert crashed.deployment_id is not None
        again = client.create_flow_run_from_deployment(crashed.deployment_id)
        assert wait_for_state(client, again.id, "Completed", "Failed").state_name == "Completed"
    stage = latest(tmp_path).stages[0]
    assert stage.outcome == "resumed"
    assert stage.first_step is not None
    assert stage.first_step > 1
    assert second.end(signal.SIGTERM)[0] == 128 + signal.SIGTERM


def test_ctrl_c_has_its_run_save_and_hand_itself_back_and_the_next_one_goes_on_with_it(
    start_up: StartUp, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    first = start_up()
    with first.client() as client:
        run = start_run(client, write_pipeline(long_probe(tmp_path)), tmp_path)
    code, said = first.end(signal.SIGINT)
    assert code == 130
    assert "waiting for 1 run(s) to save their progress" in said
    assert not first.descendants()
    second = start_up()
    with second.client() as client:
        assert wait_for_state(client, run.id, "Completed", "Failed").state_name == "Completed"
    record = latest(tmp_path)
    assert str(run.id) in (record.run_url or "")
    assert record.stages[0].outcome == "resumed"
    assert second.end(signal.SIGINT)[0] == 130


def test_a_worker_that_dies_is_started_again_and_its_run_lives_on(
    start_up: StartUp, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    running = start_up()
    with running.client() as client:
        run = start_run(client, write_pipeline(long_probe(tmp_path)), tmp_path)
        [worker] = [process for process in running.descendants() if is_worker(process)]
        os.killpg(worker, signal.SIGKILL)
        ended = wait_for_state(client, run.id, "Completed", "Failed", "Crashed")
        assert ended.state_name == "Completed"
        assert latest(tmp_path).stages[0].outcome == "done"
        assert ended.deployment_id is not None
        again = client.create_flow_run_from_deployment(ended.deployment_id)
        assert wait_for_state(client, again.id, "Completed", "Failed").state_name == "Completed"
    assert "the worker ended and is started again" in running.end(signal.SIGINT)[1]


def test_an_engine_that_is_killed_crashes_its_run_at_once_and_the_next_run_goes_on(
    start_up: StartUp, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    running = start_up()
    with running.client() as client:
        run = start_run(client, write_pipeline(long_probe(tmp_path)), tmp_path)
        [engine] = [int(path.read_text()) for path in (Path(running.up.folder) / "engines").iterdir()]
        os.kill(engine, signal.SIGKILL)
        crashed = wait_for_state(client, run.id, "Crashed", seconds=60)
        assert crashed.deployment_id is not None
        again = client.create_flow_run_from_deployment(crashed.deployment_id)
        assert wait_for_state(client, again.id, "Completed", "Failed").state_name == "Completed"
    assert latest(tmp_path).stages[0].outcome == "resumed"


def test_a_schedule_is_caught_up_after_the_server_was_down(
    start_up: StartUp, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {num_steps: 2}}\n")
    file.write_text(file.read_text() + "schedule: {cron: '* * * * *', timezone: UTC, overlap: skip}\n")
    first = start_up()
    with first.client() as client:
        deployment = deploy_file(client, file, "missed")
        wait_until(lambda: count_scheduled(client, deployment) > 1)
    first.end(signal.SIGINT)
    down = time.time()
    time.sleep(65)
    again = time.time()
    with start_up().client() as client:

        def is_caught_up() -> bool:
            missed = [run for run in runs_of(client, deployment) if down < due(run) < again]
            return any(run.state_name == "Completed" for run in missed)

        wait_until(is_caught_up, 150)


def test_a_second_one_of_a_project_says_where_the_first_one_runs(start_up: StartUp, tmp_path: Path) -> None:
    first = start_up()
    second = subprocess.run(
        [sys.executable, "-m", "flows.cli", "up"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert f"{first.up.address.removesuffix('/api')} (process {first.process.pid}," in second.stderr


def count_scheduled(client: SyncPrefectClient, deployment: UUID) -> int:
    only = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
    return sum(run.state_name == "Scheduled" for run in client.read_flow_runs(deployment_filter=only))


def due(run: FlowRun) -> float:
    assert run.expected_start_time is not None
    return run.expected_start_time.timestamp()


def is_worker(process: int) -> bool:
    command = Path(f"/proc/{process}/cmdline").read_bytes()
    return b"flows.scheduler.worker_process" in command and os.getpgid(process) == process
