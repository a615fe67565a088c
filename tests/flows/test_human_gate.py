"""A gate that asks a person, in a run of a real worker: the form, the answer, the object in the store."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Scheduled
from scheduled import deploy_file, wait_for_state, wait_until

from flows.cli import main
from stages.store.approvals import list_approvals
from stages.store.conditional import open_store
from stages.store.runs import RunRecord, latest_run

WritePipeline = Callable[..., Path]
ENDS = ("Completed", "Failed", "Crashed", "Suspended")

GATED = (
    "  first: {uses: probe, with: {num_steps: 2}}\n"
    "  ask: {gate: human, needs: [first], ask: {approvers: [ml-leads], timeout: 7d}}\n"
    "  after: {uses: probe, needs: [ask], with: {seed: 7}}\n"
    "  beside: {uses: probe, with: {seed: 8}}\n"
)

pytestmark = pytest.mark.usefixtures("probe_kinds")


def latest(tmp_path: Path) -> RunRecord:
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    return record


def outcomes(record: RunRecord) -> dict[str, str]:
    return {stage.id: stage.outcome for stage in record.stages}


def asked(client: SyncPrefectClient, file: Path, name: str) -> UUID:
    """A run that waits for its answer."""
    flow_run = client.create_flow_run_from_deployment(deploy_file(client, file, name))
    assert wait_for_state(client, flow_run.id, *ENDS).state_name == "Suspended"
    # Prefect saves the form just after it has suspended the run, and takes no answer before.
    question(client, flow_run.id)
    return flow_run.id


def question(client: SyncPrefectClient, flow_run: UUID) -> str:
    """What the form says, once it is there."""
    state = client.read_flow_run(flow_run).state
    assert state is not None
    keys = state.state_details.run_input_keyset
    assert keys is not None
    found: list[str] = []

    def is_there() -> bool:
        with suppress(ObjectNotFound, PrefectHTTPStatusError):
            found.append(client.read_flow_run_input(flow_run, keys["description"]))
        return bool(found)

    wait_until(is_there)
    return found[0]


def task_states(client: SyncPrefectClient, flow_run: UUID) -> list[tuple[str, str]]:
    """Names of all task runs and of their states, in the order of their start."""
    only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
    runs = client.read_task_runs(flow_run_filter=only)
    runs.sort(key=lambda run: str(run.start_time or run.created))
    return [(run.name.partition(" ")[0], run.state_name or "") for run in runs]


def test_a_run_is_suspended_when_nothing_else_can_go_and_an_answer_has_it_go_on_and_stays(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    run = asked(up_client, write_pipeline(GATED), "approved")
    waiting = latest(tmp_path)
    assert waiting.outcome == "waiting_approval"
    assert outcomes(waiting) == {"first": "done", "ask": "waiting_approval", "after": "waiting", "beside": "done"}
    assert "gate **ask** asks ml-leads" in question(up_client, run)
    assert up_client.resume_flow_run(run, run_input={"approved": True}).status is SetStateStatus.REJECT
    assert up_client.read_flow_run(run).state_type is StateType.PAUSED
    up_client.resume_flow_run(run, run_input={"approved": True, "by": "Ada", "comment": "good"})
    assert wait_for_state(up_client, run, *ENDS[:3]).state_name == "Completed"
    record = latest(tmp_path)
    assert (record.run_id, record.started) == (waiting.run_id, waiting.started)
    assert outcomes(record) == {"first": "done", "ask": "passed", "after": "done", "beside": "done"}
    (approval,) = list_approvals(open_store(str(tmp_path / "store")))
    assert (approval.approved, approval.by, approval.comment, approval.gate) == (True, "Ada", "good", "ask")
    assert approval.stages.keys() == approval.manifests.keys() == {"first"}
    up_client.set_flow_run_state(run, Scheduled(), force=True)
    wait_for_state(up_client, run, "Running", "Rerunning", "Retrying")
    assert wait_for_state(up_client, run, *ENDS).state_name == "Completed"
    states = task_states(up_client, run)
    assert set(states) >= {("first", "Committed"), ("ask", "Asked"), ("ask", "Passed"), ("after", "Committed")}
    assert sorted(states[-4:]) == [("after", "Reused"), ("ask", "Passed"), ("beside", "Reused"), ("first", "Reused")]


@pytest.mark.slow
def test_a_rejected_gate_ends_the_run_and_the_next_one_asks_nobody(
    up_client: SyncPrefectClient, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline(GATED)
    run = asked(up_client, file, "rejected")
    up_client.resume_flow_run(run, run_input={"approved": False, "by": "Ada", "comment": "too long"})
    assert wait_for_state(up_client, run, *ENDS[:3]).state_name == "Failed"
    assert outcomes(latest(tmp_path)) == {"first": "done", "ask": "failed", "after": "skipped", "beside": "done"}
    again = up_client.create_flow_run_from_deployment(deploy_file(up_client, file, "rejected"))
    assert wait_for_state(up_client, again.id, *ENDS).state_name == "Failed"
    (gate,) = [stage for stage in latest(tmp_path).stages if stage.id == "ask"]
    assert gate.message == "rejected by Ada: too long"


@pytest.mark.slow
def test_the_command_answers_for_a_suspended_run_which_goes_on_and_for_the_runs_after_it(
    up_client: SyncPrefectClient,
    write_pipeline: WritePipeline,
    tmp_path: Path,
    own_places: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write_pipeline(GATED)
    run = asked(up_client, file, "commanded")
    assert main(["approve", str(file), "ask", "--by", "Grace", "--comment", "ship it"]) == 0
    assert f"goes on: {latest(tmp_path).run_url}" in capsys.readouterr().out
    assert wait_for_state(up_client, run, *ENDS[:3]).state_name == "Completed"
    assert outcomes(latest(tmp_path)) == {"first": "done", "ask": "passed", "after": "done", "beside": "done"}
    (approval,) = list_approvals(open_store(str(tmp_path / "store")))
    assert (approval.by, approval.comment) == ("Grace", "ship it")
