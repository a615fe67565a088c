"""Has a run go on that was suspended for an answer which came from elsewhere than its form."""

from collections.abc import Callable
from uuid import UUID

from flows.pause_key import pause_key
from flows.prefect_pages import split_flow_run_url
from flows.scheduler.connect import connect
from flows.server import answers
from pipelines.spec.identity import split_salt
from pipelines.spec.stage_key import refresh_salt
from stages.catalog import STAGES
from stages.store.approvals import Approval
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import read_spec
from stages.store.runs import RunRecord, RunStage, list_runs, read_run

LOOK_BACK = 20
"""How many of the latest runs may be the one that waits."""


def waiting_run(store: ConditionalStore, pipeline: str, gate_key: str) -> RunRecord | None:
    """The newest run that waits for an answer at a gate and has a scheduler that can go on with it."""
    return _newest(store, pipeline, lambda gate: gate.key == gate_key)


def asking_run(store: ConditionalStore, pipeline: str, gate: str) -> RunRecord | None:
    """The same for a gate by its name."""
    return _newest(store, pipeline, lambda node: node.id == gate)


def refreshed(store: ConditionalStore, run: RunRecord) -> list[str]:
    """The stages that a run has made, or will make, again for itself alone."""
    stages = [stage for stage in run.stages if stage.key is not None and stage.kind in STAGES]
    payloads = {stage.id: read_spec(store, StagePaths(stage.kind, stage.key or "")) for stage in stages}
    own = refresh_salt(run.run_id)
    return [id_ for id_, payload in payloads.items() if payload is not None and split_salt(payload)[1] == own]


def _newest(store: ConditionalStore, pipeline: str, is_meant: Callable[[RunStage], bool]) -> RunRecord | None:
    for run_id in reversed(list_runs(store, pipeline)[-LOOK_BACK:]):
        record = read_run(store, pipeline, run_id)
        if record is None or record.outcome != "waiting_approval" or record.run_url is None:
            continue
        if any(stage.outcome == "waiting_approval" and is_meant(stage) for stage in record.stages):
            return record
    return None


def resume(run: RunRecord, approval: Approval) -> bool:
    """Answer the form of a suspended run; False if its server does not answer, or does not take it."""
    assert run.run_url is not None
    address, flow_run = split_flow_run_url(run.run_url)
    if not answers(address):
        return False
    with connect(address) as client:
        state = client.read_flow_run(UUID(flow_run)).state
        asked = pause_key(approval.gate_key, approval.manifests)
        if state is None or not state.is_paused() or state.state_details.pause_key != asked:
            return False
        answer = {"approved": approval.approved, "by": approval.by, "comment": approval.comment}
        return client.resume_flow_run(UUID(flow_run), run_input=answer).status.value == "ACCEPT"
