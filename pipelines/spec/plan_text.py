"""A plan as text for a terminal."""

from collections import Counter
from collections.abc import Iterator

from pipelines.spec.amounts import describe_size, describe_time
from pipelines.spec.identity import KEY_SHOWN
from pipelines.spec.nodes import StageNode
from pipelines.spec.planned import Decision, Plan, PlannedNode

_WORDS: dict[Decision, str] = {
    "reuse": "reused",
    "resume": "resumed",
    "run": "to run",
    "wait": "to wait for",
    "gate": "to decide",
    "action": "to act",
    "skip": "left out",
}


def plan_text(plan: Plan) -> str:
    """One line for each node, in columns: id, decision, key, reason; then the aliases and the counts."""
    rows = [_row(planned) for planned in plan.nodes.values()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    counts = Counter(planned.decision for planned in plan.nodes.values())
    summary = ", ".join(f"{counts[decision]} {word}" for decision, word in _WORDS.items() if counts[decision])
    below = [*_aliases(plan), *_estimate(plan), f"{plan.pipeline.name}: {summary}"]
    return "\n".join([*(line.rstrip() for line in lines), "", *below])


def _row(planned: PlannedNode) -> tuple[str, str, str, str]:
    key = planned.key if isinstance(planned.node, StageNode) else None
    reason = f"{planned.reason}; drift: {planned.drift}" if planned.drift else planned.reason
    unknown = "—" if planned.decision == "run" else ""
    return planned.node.id, planned.decision, (key or unknown)[:KEY_SHOWN], reason


def _aliases(plan: Plan) -> Iterator[str]:
    for name, aliased in plan.aliases.items():
        target = aliased.record.checkpoint
        yield f"alias {name} → {target.stage} {target.key[:KEY_SHOWN]}, set {aliased.record.set_at[:10]}"


def _estimate(plan: Plan) -> Iterator[str]:
    estimate = plan.estimate
    parts: list[str] = []
    if estimate.stages:
        seconds = sum(stage.seconds for stage in estimate.stages.values())
        size = sum(stage.bytes for stage in estimate.stages.values())
        most = max(stage.num_commits for stage in estimate.stages.values())
        commits = "the last commit" if most == 1 else f"the last {most} commits"
        parts += [f"{describe_time(seconds)} from {commits} of each stage", f"{describe_size(size)} new"]
    if estimate.unknown:
        kinds = dict.fromkeys(plan.nodes[node_id].kind for node_id in estimate.unknown)
        parts.append(f"no estimate for {', '.join(kinds)}: never committed here")
    if estimate.num_reused:
        stages = "1 stage" if estimate.num_reused == 1 else f"{estimate.num_reused} stages"
        parts.append(f"{stages} reused saves {describe_time(estimate.saved_seconds)}")
    if parts and (estimate.stages or estimate.unknown):
        yield f"estimate: {'; '.join(parts)}"
