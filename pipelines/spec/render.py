"""A plan as text for a terminal."""

from collections import Counter

from pipelines.spec.identity import KEY_SHOWN
from pipelines.spec.plan import Decision, Plan, PlannedNode

_WORDS: dict[Decision, str] = {
    "reuse": "reused",
    "resume": "resumed",
    "run": "to run",
    "gate": "to decide",
    "skip": "left out",
}


def render(plan: Plan) -> str:
    """One line for each node, in columns: id, decision, key, reason; and a line with the counts."""
    rows = [_row(planned) for planned in plan.nodes.values()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    counts = Counter(planned.decision for planned in plan.nodes.values())
    summary = ", ".join(f"{counts[decision]} {word}" for decision, word in _WORDS.items() if counts[decision])
    return "\n".join([*(line.rstrip() for line in lines), "", f"{plan.pipeline.name}: {summary}"])


def _row(planned: PlannedNode) -> tuple[str, str, str, str]:
    return planned.node.id, planned.decision, (planned.key or "")[:KEY_SHOWN], planned.reason
