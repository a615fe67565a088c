"""`temper up` as a process: what becomes of its runs when it, its worker or one of them ends, however that happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from scheduled import deploy_file, engine_python, runs_of, wait_for_state, wait_until

from flows.scheduler.address import Up, find_up
from flows.scheduler.connect import connect
from stages.store.conditional import open_store
from stages.store.runs import RunRecord, latest_run

WritePipeline = Callable[..., Path]
StartUp = Callable[[], "Running"]

UP = Path(__file__).parents[2] / "probe" / "up_probe.py"
START_SECONDS = 120
ZOMBIE_SECONDS = 240

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("probe_kinds", "own_places"), pytest.mark.timeout(600)]


class Running:
    """A `temper up` in the project of the test."""

    def __init__(self, project: Path, environment: dict[str, str]) -> None:
        command = [sys.executable, str(UP), "up", "--port", "0"]
        self._project = project
        self.process = subprocess.Popen(
            command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        wait_until(lambda: self.process.poll() is not None or find_up(project / ".temper") is not None, START_SECONDS)
        up = find_up(project / ".temper")
        assert up is not None, self.process.communicate()[0]
        self.up: Up = up

    @contextmanager
    def client(self) -> Generator[SyncPrefectClient]:
        with connect(self.up.address) as client:
            yield client

    def descendants(self) -> set[int]:
        """Processes that have this one's folder in their environment, or listen for it."""
        mark = f"TEMPER_UP_FOLDER={self.up.folder}".encode()
        home = f"PREFECT_HOME={self.up.folder}".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and any(word in (entry / "environ").read_bytes() for word in (mark, home)):
                    found.add(int(entry.name))
            except OSError:
                continue
        return found - {self.process.pid}

    def end(self, number: signal.Signals, seconds: float = 60) -> tuple[int, str]:
        """Send it a signal; returns its exit code and all that it said."""
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output


@pytest.fixture
def start_up(tmp_path: Path, own_places: None) -> Iterator[StartUp]:
    folder = tmp_path / "engine"
    folder.mkdir()
    (tmp_path / ".temper").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment["PROBE_ENGINE"] = str(engine_python(folder))
    started: list[Running] = []

    def start() -> Running:
        started.append(Running(tmp_path, environment))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


def long_probe(tmp_path: Path, **further: str) -> str:
    settings = {"num_steps": "8", "step_seconds": "1.5", "pids": str(tmp_path / "pids"), **further}
    return f"  one: {{uses: probe, with: {{{', '.join(f'{name}: {value}' for name, value in settings.items())}}}}}\n"


def latest(tmp_path: Path) -> RunRecord:
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    return record


def start_run(client: SyncPrefectClient, file: Path, tmp_path: Path) -> FlowRun:
    """A run that has saved something."""
    run = client.create_flow_run_from_deployment(deploy_file(client, file, "long"))
    wait_until(lambda: any((tmp_path / "store").rglob("*.commit.json")), 120)
    return run


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


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
    first.process.kill()
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
        wait_until(lambda: len(scheduled(client, deployment)) > 1)
        due = scheduled(client, deployment)[0].expected_start_time
    first.end(signal.SIGINT)
    assert due is not None
    time.sleep(max(0.0, due.timestamp() + 5 - time.time()))
    with start_up().client() as client:
        wait_until(lambda: any(run.state_name == "Completed" for run in runs_of(client, deployment)), 120)
        caught_up = runs_of(client, deployment)[0]
    assert caught_up.expected_start_time == due
    assert caught_up.state_name == "Completed"


def test_a_second_one_of_a_project_says_where_the_first_one_runs(start_up: StartUp, tmp_path: Path) -> None:
    first = start_up()
    second = subprocess.run(
        [sys.executable, "-m", "flows.cli", "up"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert f"{first.up.address.removesuffix('/api')} (process {first.process.pid}," in second.stderr


def scheduled(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    runs = client.read_flow_runs(limit=50)
    mine = [run for run in runs if run.deployment_id == deployment and run.state_name == "Scheduled"]
    return sorted(mine, key=lambda run: str(run.expected_start_time))


def is_worker(process: int) -> bool:
    command = Path(f"/proc/{process}/cmdline").read_bytes()
    return b"flows.scheduler.worker_process" in command and os.getpgid(process) == process
