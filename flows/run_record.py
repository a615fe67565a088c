"""The record of a run as it begins: what was planned, by whom it is done."""

import sys
from datetime import UTC, datetime

from pipelines.spec.nodes import ExternalSource, Pipeline, StageNode
from pipelines.spec.planned import PlannedNode
from stages.store.holder import this_holder
from stages.store.runs import RunRecord, RunStage


def new_record(pipeline: Pipeline, run_id: str, run_url: str | None) -> RunRecord:
    """A run of `pipeline` by this process that starts now."""
    return RunRecord(
        run_id=run_id,
        pipeline=pipeline.name,
        description=pipeline.description,
        path=str(pipeline.path),
        profile=pipeline.profile,
        argv=tuple(sys.argv),
        started=datetime.now(UTC).isoformat(),
        run_url=run_url,
        holder=this_holder(run_url),
    )


def describe(planned: PlannedNode) -> RunStage:
    """A node before anything happened to it."""
    node = planned.node
    is_stage = isinstance(node, StageNode)
    inputs = {
        name: value.uri if isinstance(value, ExternalSource) else f"{value.stage}.{value.output}"
        for name, value in node.inputs.items()
    }
    return RunStage(
        id=node.id,
        kind=node.kind if is_stage else "gate",
        key=planned.key,
        decision=planned.decision,
        reason=planned.reason,
        inputs=inputs,
        settings=node.config.model_dump_json() if is_stage else "",
        outcome="skipped" if planned.decision == "skip" else "waiting",
        message=planned.reason if planned.decision == "skip" else "",
    )
