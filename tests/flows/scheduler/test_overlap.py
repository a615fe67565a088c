"""What a run of a deployment does that starts while another one goes, with states as a real server has them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.states import Completed, Running

from flows.scheduler.deployment import Request, deploy
from flows.scheduler.overlap import skip_if_overlapping
from flows.scheduler.pool import ensure_pool
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Schedule

WritePipeline = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("probe_kinds")


def two_runs(client: SyncPrefectClient, file: Path, overlap: Literal["skip", "queue"]) -> tuple[UUID, UUID]:
    """Of a new deployment that no worker knows; both go."""
    ensure_pool(client, "idle")
    pipeline = replace(load_pipeline(file), schedule=Schedule("0 2 29 FEB *", "UTC", None, {}, overlap))
    deployment = deploy(client, Request(pipeline, (), f"overlap-{uuid4()}", "idle", True)).id
    first, second = (client.create_flow_run_from_deployment(deployment).id for _ in range(2))
    for flow_run in (first, second):
        client.set_flow_run_state(flow_run, Running(), force=True)
    return first, second


@pytest.fixture
def file(write_pipeline: WritePipeline) -> Path:
    return write_pipeline("  one: {uses: probe, with: {}}\n")


def test_the_later_of_two_runs_is_skipped_and_names_the_one_before(up_client: SyncPrefectClient, file: Path) -> None:
    first, second = two_runs(up_client, file, "skip")
    assert skip_if_overlapping(first) is None
    skipped = skip_if_overlapping(second)
    assert skipped is not None
    assert (skipped.is_cancelled(), skipped.name) == (True, "Skipped")
    assert skipped.message == f"the run {up_client.read_flow_run(first).name} still goes (overlap: skip)"


def test_a_run_before_that_has_ended_is_in_nobodys_way(up_client: SyncPrefectClient, file: Path) -> None:
    first, second = two_runs(up_client, file, "skip")
    up_client.set_flow_run_state(first, Completed(), force=True)
    assert skip_if_overlapping(second) is None


def test_where_runs_queue_the_server_has_them_wait_and_none_is_skipped(
    up_client: SyncPrefectClient, file: Path
) -> None:
    assert [skip_if_overlapping(flow_run) for flow_run in two_runs(up_client, file, "queue")] == [None, None]
