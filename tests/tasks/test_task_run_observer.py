"""What a stage shows in Prefect while it works, read back from a real server."""

import time
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.context import FlowRunContext, TaskRunContext
from prefect.states import Completed

from stages.contract import Beat
from tasks.artifacts import Artifact, Artifacts, artifact_key
from tasks.task_run_observer import TaskRunObserver


@flow
def shows() -> None:
    """Only its id is used."""


def state_names(task_run: UUID, at_least: int) -> list[str]:
    """Of all states that the server has, oldest first, once there are enough."""
    deadline = time.monotonic() + 10
    names: list[str] = []
    while len(names) < at_least and time.monotonic() < deadline:
        time.sleep(0.1)
        with get_client(sync_client=True) as client:
            states = client.read_task_run_states(task_run)
        names = [state.name or "" for state in sorted(states, key=lambda state: state.timestamp)]
    return names


def artifacts_of(flow_run: UUID) -> dict[str, tuple[object, str | None, UUID | None]]:
    """Data, description and task run of each by key; a key that was created twice fails."""
    only = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run]))
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=only)
    assert len({artifact.key for artifact in found}) == len(found)
    return {artifact.key or "": (artifact.data, artifact.description, artifact.task_run_id) for artifact in found}


def test_a_task_run_shows_what_its_stage_does_under_names_of_ours_and_ends_as_it_says(prefect_api: str) -> None:
    ids: dict[str, UUID] = {}

    @task(persist_result=False)
    def work(artifacts: Artifacts) -> object:
        context = TaskRunContext.get()
        assert context is not None
        ids["task"] = context.task_run.id
        observer = TaskRunObserver("dpo[beta=0.1]", context.task_run, artifacts)
        observer.waiting("waiting for http://127.0.0.1/runs/7")
        observer.running("")
        observer.beat(Beat(step=1, total=4, numbers={"loss": 2.0}))
        observer.preempted("2 more are allowed")
        observer.running("resuming after step 1")
        observer.beat(Beat(step=4, total=4, numbers={"loss": 1.0}))
        return Completed(name="Resumed")

    @flow(persist_result=False)
    def main() -> None:
        context = FlowRunContext.get()
        assert context is not None
        assert context.flow_run is not None
        ids["flow"] = context.flow_run.id
        artifacts = Artifacts(context.flow_run.id)
        work(artifacts, return_state=True)
        artifacts.close()

    main()
    names = ["Pending", "Running", "Waiting", "Running", "Preempted", "Running", "Resumed"]
    assert state_names(ids["task"], len(names)) == names
    with get_client(sync_client=True) as client:
        run = client.read_task_run(ids["task"])
    assert (run.state_name, run.run_count) == ("Resumed", 1)
    assert artifacts_of(ids["flow"]) == {
        "progress-dpo-beta-0-1": (100.0, "**dpo[beta=0.1]** step 4 of 4  loss 1", ids["task"])
    }


def test_an_artifact_is_written_at_once_and_then_no_more_often_than_it_should(
    prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(shows).id
    artifacts = Artifacts(flow_run)
    artifacts.put(Artifact("plan", "markdown", "one"))
    deadline = time.monotonic() + 10
    while not artifacts_of(flow_run) and time.monotonic() < deadline:
        time.sleep(0.05)
    artifacts.put(Artifact("plan", "markdown", "two"))
    time.sleep(1.0)
    assert artifacts_of(flow_run)["plan"][0] == "one"
    artifacts.close()
    assert artifacts_of(flow_run)["plan"][0] == "two"


def test_a_server_that_is_gone_costs_a_run_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}):
        artifacts = Artifacts(UUID(int=1))
        started = time.monotonic()
        for step in range(1000):
            artifacts.put(Artifact("progress", "progress", float(step)))
        assert time.monotonic() - started < 0.5
        artifacts.close()
        assert time.monotonic() - started < 7


def test_a_key_has_only_signs_that_prefect_takes() -> None:
    assert artifact_key("progress", "DPO[beta=0.1]_x") == "progress-dpo-beta-0-1-x"
