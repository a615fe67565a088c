"""How Prefect names runs, their nodes, and the ends of nodes that no process ran."""

from pathlib import Path

from stages.store.runs import RunStage, StageOutcome

ENDS: dict[StageOutcome, str] = {
    "passed": "Passed",
    "done": "Done",
    "reused": "Reused",
    "skipped": "Skipped",
    "waiting_approval": "Asked",
    "failed": "NotPassed",
}
"""Outcomes of such nodes, and the names of the states that show them."""
WAITING_APPROVAL = "WaitingApproval"
"""State of a run that nobody can go on with but who approves a gate and runs it again."""


def flow_run_name(file: Path, profile: str | None) -> str:
    """For example `sweep-approved`."""
    return "-".join(part for part in (file.stem, profile) if part)


def task_run_name(node_id: str, key: str | None) -> str:
    """For example `sft · 41c2ab12`."""
    return f"{node_id} · {key[:8]}" if key else node_id


def end_name(node: RunStage) -> str:
    """The name of the state in which a node ended that no process ran; an action fails, a gate does not pass."""
    return "Failed" if node.outcome == "failed" and node.kind != "gate" else ENDS[node.outcome]


def end_text(node: RunStage) -> str:
    """Why, for people."""
    return "\n".join(part for part in (node.message, *node.lines) if part) or node.reason
