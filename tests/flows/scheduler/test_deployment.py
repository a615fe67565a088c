"""Deployments at a real server, run by a real worker."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.exceptions import PrefectHTTPStatusError
from scheduled import deploy_file, runs_of, wait_for_state, wait_until

from flows.cli import main
from flows.scheduler.deployment import Request, deploy
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Pipeline, Schedule
from stages.errors import UserError
from stages.store.conditional import open_store
from stages.store.runs import RunRecord, latest_run

WritePipeline = Callable[..., Path]

ONE = "  one: {uses: probe, with: {num_steps: 2}}\n"
NEVER_SOON = Schedule("0 2 29 FEB *", "Europe/Berlin", None, {}, "skip")

pytestmark = pytest.mark.usefixtures("probe_kinds")


def latest(tmp_path: Path) -> RunRecord:
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    return record


def deploy_pipeline(client: SyncPrefectClient, pipeline: Pipeline, name: str) -> UUID:
    return deploy(client, Request(pipeline, (), name, "temper", False)).id


def test_a_deployment_that_is_asked_for_is_run_by_the_worker_with_the_parameters_of_the_form(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {num_steps: '${params.steps}'}}\n")
    file.write_text(file.read_text() + "params:\n  steps: {type: int, default: 2}\n")
    deployment = deploy_file(up_client, file, "asked")
    with pytest.raises(PrefectHTTPStatusError, match="409"):
        up_client.create_flow_run_from_deployment(deployment, parameters={"params": {"steps": "many"}})
    flow_run = up_client.create_flow_run_from_deployment(deployment, parameters={"params": {"steps": 3}})
    ended = wait_for_state(up_client, flow_run.id, "Completed", "Failed", "Crashed")
    assert ended.state_name == "Completed"
    record = latest(tmp_path)
    assert [(stage.id, stage.outcome, stage.last_step) for stage in record.stages] == [("one", "done", 3)]
    assert record.run_url is not None
    assert str(flow_run.id) in record.run_url


def test_a_second_deployment_of_a_name_replaces_the_schedule_of_the_first(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline
) -> None:
    pipeline = load_pipeline(write_pipeline(ONE))
    request = Request(replace(pipeline, schedule=NEVER_SOON), (), "again", "temper", False)
    first = deploy(up_client, request)
    second = deploy(up_client, request)
    assert (first.is_new, second.is_new, second.id) == (True, False, first.id)
    assert [f"{fire:%d %b %H:%M %Z}" for fire in second.fires] == ["29 Feb 02:00 CET"] * 3
    deployment = up_client.read_deployment(second.id)
    assert deployment.global_concurrency_limit is not None
    assert deployment.global_concurrency_limit.limit == 1
    assert deployment.concurrency_options is not None
    assert deployment.concurrency_options.collision_strategy is ConcurrencyLimitStrategy.CANCEL_NEW
    assert len(deployment.schedules) == 1
    deploy_pipeline(up_client, pipeline, "again")
    deployment = up_client.read_deployment(second.id)
    assert (deployment.schedules, deployment.global_concurrency_limit) == ([], None)


def test_a_pool_that_a_pipeline_names_gets_a_limit_once_and_keeps_the_one_it_has(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {}, resources: {pool: rare}}\n")
    request = Request(load_pipeline(file), (), "pooled", "temper", False)
    assert deploy(up_client, request).limits == ("rare",)
    up_client.upsert_global_concurrency_limit_by_name("tag:rare", 3)
    assert deploy(up_client, request).limits == ()
    assert up_client.read_global_concurrency_limit_by_name("tag:rare").limit == 3


def test_a_schedule_fires_and_a_run_that_finds_the_one_before_still_going_is_skipped(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    settings = "num_steps: '${params.steps}', step_seconds: 4"
    file = write_pipeline(f"  one: {{uses: probe, with: {{{settings}}}}}\n")
    file.write_text(file.read_text() + "params:\n  steps: {type: int, default: 2}\n")
    # Prefect takes a sixth field of seconds, so that a test need not wait for a minute to begin.
    schedule = Schedule("* * * * * */6", "UTC", None, {"steps": 4}, "skip")
    deployment = deploy_pipeline(up_client, replace(load_pipeline(file), schedule=schedule), "clocked")
    try:
        wait_until(lambda: {"Completed", "Cancelled"} <= states(up_client, deployment), 150)
    finally:
        up_client.pause_deployment(deployment)
    first, second, *_ = runs_of(up_client, deployment)
    assert (first.state_name, second.state_name) == ("Completed", "Cancelled")
    assert first.auto_scheduled
    assert latest(tmp_path).stages[0].last_step == 4


def states(client: SyncPrefectClient, deployment: UUID) -> set[str | None]:
    return {run.state_name for run in runs_of(client, deployment)}


def test_a_schedule_that_the_scheduler_does_not_understand_is_bad_usage(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline
) -> None:
    odd = replace(load_pipeline(write_pipeline(ONE)), schedule=Schedule("x * * * *", "UTC", None, {}, "skip"))
    with pytest.raises(UserError, match=r"cron `x \* \* \* \*`, timezone `UTC`: .*Invalid cron string"):
        deploy_pipeline(up_client, odd, "odd")


def test_the_command_says_what_it_made_and_where(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline(ONE)
    file.write_text(file.read_text() + "schedule: {cron: '0 2 29 FEB *', timezone: Europe/Berlin, overlap: queue}\n")
    assert main(["deploy", str(file), "--name", "told", "--pause"]) == 0
    server, made, schedule, overlap, page = capsys.readouterr().out.splitlines()
    assert server.endswith("known from PREFECT_API_URL")
    assert made == "deployment temper/told created, runs in work pool temper"
    assert schedule == "schedule 0 2 29 FEB * Europe/Berlin: paused"
    assert overlap == "a run that finds the one before still going waits for it"
    deployment = up_client.read_deployment_by_name("temper/told")
    assert page.endswith(f"/deployments/deployment/{deployment.id}")
    assert deployment.paused
    assert main(["deploy", str(file), "--name", "told", "--work-pool", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("no work pool `nowhere`")


def test_a_file_that_is_wrong_with_the_values_of_its_schedule_is_not_deployed(
    write_pipeline: WritePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {seed: '${params.base}'}}\n")
    file.write_text(
        file.read_text()
        + "params:\n  base: {type: int, default: 2}\n"
        + "schedule: {cron: '0 2 * * *', timezone: Europe/Berlin, params: {base: wrong}}\n"
    )
    assert main(["deploy", str(file)]) == 2
    shown = capsys.readouterr().err
    assert main(["validate", str(file)]) == 2
    assert capsys.readouterr().err == shown
