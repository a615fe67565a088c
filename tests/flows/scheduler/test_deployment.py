"""Deployments at a real server, run by a real worker."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from scheduled import deploy_file, wait_for_state

from stages.store.conditional import open_store
from stages.store.runs import latest_run

WritePipeline = Callable[..., Path]

ONE = "  one: {uses: probe, with: {num_steps: 2}}\n"


@pytest.mark.usefixtures("probe_kinds")
def test_a_deployment_that_is_asked_for_is_run_by_the_worker(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    deployment = deploy_file(up_client, write_pipeline(ONE), "asked")
    flow_run = up_client.create_flow_run_from_deployment(deployment)
    ended = wait_for_state(up_client, flow_run.id, "Completed", "Failed", "Crashed")
    assert ended.state_name == "Completed"
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    assert [(stage.id, stage.outcome) for stage in record.stages] == [("one", "done")]
    assert record.run_url is not None
    assert str(flow_run.id) in record.run_url
