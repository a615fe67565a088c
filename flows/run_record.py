"""The record of a run as it begins: what was planned, by whom it is done."""

import sys

from pipelines.spec.nodes import (
    ActionNode,
    AliasOutput,
    ExternalSource,
    GateNode,
    HumanGateNode,
    Pipeline,
    StageInputSpec,
    StageNode,
    StageOutput,
)
from pipelines.spec.planned import PlannedNode
from stages.store.holder import this_holder
from stages.store.moments import now
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
        started=now(),
        run_url=run_url,
        holder=this_holder(run_url),
    )


def describe(planned: PlannedNode) -> RunStage:
    """A node before anything happened to it."""
    node = planned.node
    return RunStage(
        id=node.id,
        kind=planned.kind,
        key=planned.key,
        decision=planned.decision,
        reason=planned.reason,
        inputs=_inputs(planned),
        settings=node.config.model_dump_json() if isinstance(node, StageNode) else "",
        outcome="skipped" if planned.decision == "skip" else "waiting",
        message=planned.reason if planned.decision == "skip" else "",
    )


def _inputs(planned: PlannedNode) -> dict[str, str]:
    match planned.node:
        case HumanGateNode():
            return {}
        case StageNode(inputs=inputs) | GateNode(inputs=inputs):
            return {name: _describe(value) for name, value in inputs.items()}
        case ActionNode(inputs=lists):
            return {name: ", ".join(_describe(value) for value in values) for name, values in lists.items()}


def _describe(value: StageInputSpec) -> str:
    match value:
        case ExternalSource(uri=uri):
            return uri
        case AliasOutput(alias=alias):
            return f"aliases.{alias}"
        case StageOutput(stage=stage, output=output):
            return f"{stage}.{output}"
