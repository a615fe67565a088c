"""A plan as JSON, for other programs and for the archive."""

import json
from dataclasses import asdict

from pydantic import JsonValue

from pipelines.spec.planned import AliasedResult, Plan, PlannedNode


def plan_json(plan: Plan) -> str:
    """All that the plan decided."""
    return json.dumps(
        {
            "pipeline": plan.pipeline.name,
            "file": str(plan.pipeline.path),
            "profile": plan.pipeline.profile,
            "store": plan.pipeline.store,
            "params": dict(plan.pipeline.params),
            "has_work": plan.has_work,
            "has_effects": plan.has_effects,
            "aliases": {name: _alias(aliased) for name, aliased in plan.aliases.items()},
            "estimate": asdict(plan.estimate),
            "nodes": [_node(planned) for planned in plan.nodes.values()],
        },
        indent=2,
    )


def _alias(aliased: AliasedResult) -> JsonValue:
    target = aliased.record.checkpoint
    return {"stage": target.stage, "key": target.key, "output": target.output}


def _node(planned: PlannedNode) -> dict[str, JsonValue]:
    return {
        "id": planned.node.id,
        "kind": planned.kind,
        "needs": list(planned.node.needs),
        "decision": planned.decision,
        "reason": planned.reason,
        "key": planned.key,
        "changes": [{"path": one.path, "before": one.before, "after": one.after} for one in planned.changes],
        "resume_step": planned.resume_step,
        "same_as": planned.same_as,
        "if": planned.pending.text if planned.pending else None,
        "chosen": planned.chosen,
        "is_settled": planned.is_settled,
        "waits_for": planned.holder.model_dump(mode="json") if planned.holder else None,
        "drift": planned.drift,
    }
