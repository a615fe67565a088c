"""The work pool and its rule at a real server, and what `temper up` refuses."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.states import Pending, Running

from flows.cli import main
from flows.scheduler.deployment import Request, deploy
from flows.scheduler.pool import COMMAND, ZOMBIES, ensure_pool, ensure_zombie_rule, hand_back_pending
from flows.server_home import HomeTakenError, claim_home
from pipelines.spec.load import load_pipeline

WritePipeline = Callable[..., Path]


def test_the_pool_is_made_once_and_its_command_is_put_right(up_client: SyncPrefectClient) -> None:
    ensure_pool(up_client, "mended")
    made = up_client.read_work_pool("mended")
    assert made.base_job_template["variables"]["properties"]["command"]["default"] == COMMAND
    other = {**made.base_job_template, "job_configuration": {"command": "sleep 1"}}
    up_client.update_work_pool("mended", WorkPoolUpdate(base_job_template=other))
    ensure_pool(up_client, "mended")
    again = up_client.read_work_pool("mended")
    assert (again.id, again.base_job_template) == (made.id, made.base_job_template)


def test_the_rule_about_zombies_is_there_once(up_client: SyncPrefectClient) -> None:
    ensure_zombie_rule(up_client)
    ensure_zombie_rule(up_client)
    assert len(up_client.read_automations_by_name(ZOMBIES)) == 1


@pytest.mark.usefixtures("probe_kinds")
def test_runs_that_were_about_to_start_start_again_and_those_that_ran_are_left_to_the_rule(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline
) -> None:
    ensure_pool(up_client, "left")
    pipeline = load_pipeline(write_pipeline("  one: {uses: probe, with: {}}\n"))
    deployment = deploy(up_client, Request(pipeline, (), "left", "left", False)).id
    pending, ran = (up_client.create_flow_run_from_deployment(deployment).id for _ in range(2))
    up_client.set_flow_run_state(pending, Pending())
    up_client.set_flow_run_state(ran, Running(), force=True)
    hand_back_pending(up_client, "left")
    assert up_client.read_flow_run(pending).state_name == "AwaitingRetry"
    assert up_client.read_flow_run(ran).state_name == "Running"


def test_a_port_that_is_taken_is_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["up", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"--port {port}: Address already in use; choose another one, or leave it out\n"


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_a_port_is_a_number_that_ports_have(port: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", f"--port={port}"])
    assert ended.value.code == 2


def test_a_home_is_held_by_one_server(tmp_path: Path) -> None:
    claim_home(tmp_path / "home", 0.0)
    with pytest.raises(HomeTakenError, match=rf"another Prefect server uses {tmp_path}/home: stop it, or .* --home"):
        claim_home(tmp_path / "home", 0.1)
