"""What the compose file sets up, without its containers: Postgres, Redis, a server in two halves, a worker."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from compose_file import Compose, example, read_compose
from own_services import free_port, postgres, redis, running
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings
from running_up import Running
from scheduled import deploy_file, long_probe, runs_of, start_run, wait_for_state, wait_until

from flows.scheduler.connect import connect
from flows.scheduler.deployment import Request, deploy
from flows.server import answers
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Schedule

WritePipeline = Callable[..., Path]

AUTH = "temper:for this test"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("probe_kinds"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def compose() -> Compose:
    return read_compose({**example(), "TEMPER_AUTH": AUTH})


@pytest.fixture(scope="module")
def server(compose: Compose, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server; only the names of hosts in the compose file's settings are others."""
    assert find_spec("prefect_redis") is not None, "`make test-slow` installs infra/locks/server.txt"
    folder = tmp_path_factory.mktemp("services")
    port = free_port()
    with ExitStack() as stack:
        hosts = {
            "@postgres:5432": f"@127.0.0.1:{stack.enter_context(postgres(compose))}",
            "//redis:6379": f"//127.0.0.1:{stack.enter_context(redis(compose, folder))}",
        }
        own = {"PREFECT_SERVER_API_HOST": "127.0.0.1", "PREFECT_SERVER_API_PORT": str(port)}
        address = f"http://127.0.0.1:{port}/api"
        for name in ("server", "services"):
            service = compose["services"][name]
            settings = {key: _elsewhere(value, hosts) for key, value in service.get("environment", {}).items()}
            command = [sys.executable, "-m", "prefect", *service["command"]]
            home = {"PREFECT_HOME": str(folder / name), **(own if name == "server" else {})}
            stack.enter_context(running(command, folder / f"{name}.log", settings={**settings, **home}))
            wait_until(lambda: answers(address), 120)
        yield address


@pytest.fixture
def worker(server: str, compose: Compose, tmp_path: Path, own_places: None) -> Iterator[Running]:
    """A `temper up` with the worker's settings, at this server."""
    up = start_worker(compose, server, tmp_path)
    yield up
    up.kill()


def start_worker(compose: Compose, address: str, project: Path) -> Running:
    settings = {**compose["services"]["worker"].get("environment", {}), "PREFECT_API_URL": address}
    return Running(project, ["--home", str(project / "up")], settings)


@pytest.fixture
def client(worker: Running) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_AUTH_STRING: AUTH}), connect(worker.up.address) as client:
        yield client


def test_a_run_that_is_asked_for_and_runs_by_the_clock_happen_once_each(
    client: SyncPrefectClient, write_pipeline: WritePipeline
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {num_steps: 2}}\n")
    asked = client.create_flow_run_from_deployment(deploy_file(client, file, "asked"))
    assert wait_for_state(client, asked.id, "Completed", "Failed", "Crashed").state_name == "Completed"
    schedule = Schedule("* * * * * */15", "UTC", None, {}, "queue")
    request = Request(replace(load_pipeline(file), schedule=schedule), (), "clocked", "temper", False)
    clocked = deploy(client, request).id
    wait_until(lambda: len([run for run in runs_of(client, clocked) if run.state_name == "Completed"]) >= 2, 150)
    client.pause_deployment(clocked)
    due = [run.expected_start_time for run in runs_of(client, clocked)]
    assert len(due) == len(set(due))


def test_a_run_whose_worker_and_engine_are_killed_crashes_by_the_rule_and_the_next_run_goes_on(
    worker: Running, client: SyncPrefectClient, write_pipeline: WritePipeline, compose: Compose, tmp_path: Path
) -> None:
    lost = start_run(client, write_pipeline(long_probe(tmp_path)), tmp_path)
    worker.kill()
    crashed = wait_for_state(client, lost.id, "Crashed", seconds=240)
    assert crashed.deployment_id is not None
    second = start_worker(compose, worker.up.address, tmp_path)
    try:
        again = client.create_flow_run_from_deployment(crashed.deployment_id)
        assert wait_for_state(client, again.id, "Completed", "Failed").state_name == "Completed"
    finally:
        second.kill()


def _elsewhere(value: str, hosts: dict[str, str]) -> str:
    for name, there in hosts.items():
        value = value.replace(name, there)
    return value
