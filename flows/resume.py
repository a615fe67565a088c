"""Has a run go on that was suspended for an answer which came from elsewhere than its form."""

from uuid import UUID

from flows.pause_key import pause_key
from flows.scheduler.connect import connect
from flows.server import answers
from stages.store.approvals import Approval
from stages.store.conditional import ConditionalStore
from stages.store.runs import RunRecord, list_runs, read_run

LOOK_BACK = 20
"""How many of the latest runs may be the one that waits."""


def waiting_run(store: ConditionalStore, pipeline: str, gate_key: str) -> RunRecord | None:
    """The newest run that waits for an answer at a gate and has a scheduler that can go on with it."""
    for run_id in reversed(list_runs(store, pipeline)[-LOOK_BACK:]):
        record = read_run(store, pipeline, run_id)
        if record is None or record.outcome != "waiting_approval" or record.run_url is None:
            continue
        if any(stage.key == gate_key and stage.outcome == "waiting_approval" for stage in record.stages):
            return record
    return None


def resume(run: RunRecord, approval: Approval) -> bool:
    """Answer the form of a suspended run; False if its server does not answer, or does not take it."""
    assert run.run_url is not None
    page, _, flow_run = run.run_url.partition("/runs/flow-run/")
    address = f"{page}/api"
    if not answers(address):
        return False
    with connect(address) as client:
        state = client.read_flow_run(UUID(flow_run)).state
        if state is None or not state.is_paused() or state.state_details.pause_key != pause_key(approval.gate_key):
            return False
        answer = {"approved": approval.approved, "by": approval.by, "comment": approval.comment}
        return client.resume_flow_run(UUID(flow_run), run_input=answer).status.value == "ACCEPT"
