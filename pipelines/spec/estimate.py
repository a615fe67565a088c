"""How long a plan would take and how much it would store, from what like stages took before."""

import statistics
from collections.abc import Mapping, Sequence

from pipelines.spec.field_changes import fields_of, num_changes
from pipelines.spec.history import History
from pipelines.spec.nodes import StageNode
from pipelines.spec.planned import Estimate, PlannedNode, StageEstimate
from stages.store.committed import CommittedStage
from stages.store.manifest import Manifest

COMMITS = 5
"""Results that an estimate is the median of: those with the most settings in common, and of these the newest."""
STEPS_FIELD = "num_steps"
"""The setting by which a stage says how many steps it has."""


def estimate_work(planned: Mapping[str, PlannedNode], history: History) -> Estimate:
    """The sum over the stages that would run, one after the other, and what the others save.

    Raises:
        StorageError: earlier results cannot be read.
    """
    stages: dict[str, StageEstimate] = {}
    unknown: list[str] = []
    for node_id, one in planned.items():
        if one.decision in ("run", "resume", "wait"):
            found = _stage(one, history)
            if found is None:
                unknown.append(node_id)
            else:
                stages[node_id] = found
    reused = [one.manifest for one in planned.values() if one.manifest is not None and one.same_as is None]
    return Estimate(stages, tuple(unknown), len(reused), sum(manifest.seconds for manifest in reused))


def _stage(planned: PlannedNode, history: History) -> StageEstimate | None:
    commits = _nearest(planned, history.committed(planned.kind))
    if not commits:
        return None
    steps = _num_steps(planned)
    per_step = [_seconds_per_step(one) for one in commits]
    known = [seconds for seconds in per_step if seconds is not None]
    if steps is not None and known:
        seconds = statistics.median(known) * max(0, steps - (planned.resume_step or 0))
    else:
        seconds = statistics.median(one.manifest.seconds for one in commits)
    return StageEstimate(seconds, int(statistics.median(_size(one.manifest) for one in commits)), len(commits))


def _nearest(planned: PlannedNode, committed: Sequence[CommittedStage]) -> Sequence[CommittedStage]:
    """The sort is stable: of equally near ones the newest stay first."""
    payload = planned.payload
    if payload is None:
        return committed[:COMMITS]
    return sorted(committed, key=lambda one: num_changes(one.payload, payload))[:COMMITS]


def _seconds_per_step(one: CommittedStage) -> float | None:
    text = fields_of(one.payload).get(f"with.{STEPS_FIELD}")
    steps = one.manifest.num_steps or (int(text) if text is not None else None)
    return one.manifest.seconds / steps if steps else None


def _num_steps(planned: PlannedNode) -> int | None:
    assert isinstance(planned.node, StageNode)
    steps = planned.node.config.model_dump().get(STEPS_FIELD)
    return steps if isinstance(steps, int) else None


def _size(manifest: Manifest) -> int:
    return sum(entry.size for entries in manifest.outputs.values() for entry in entries)
