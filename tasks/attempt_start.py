"""What an attempt starts from: saved steps by the stage's policy, and what earlier attempts taught."""

from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.spec.resume_points import resume_points
from stages.contract import ProgressPoint
from stages.store.attempts import AttemptRecord, attempt_names, read_attempt
from tasks.crash_loop import failures_in_place, point_to_leave_out
from tasks.memory_relief import lowered_settings
from tasks.stage_work import StageWork

NUM_RECORDS = 12
"""Attempts that are looked at: more than can fail in a row, with preempted ones in between."""
NUM_POINTS = 4
"""Saved steps that the stage gets to choose from, should one not be readable."""


@dataclass(frozen=True)
class AttemptStart:
    """What an attempt starts from.

    Attributes:
        history: earlier attempts, newest first.
        points: saved steps, best first.
        left_out: a saved step that may be the reason for failures, and is not among them.
        lowered: settings that replace those of the file.
        notes: what the user should know of this.
    """

    history: tuple[AttemptRecord, ...]
    points: tuple[ProgressPoint, ...]
    left_out: ProgressPoint | None
    lowered: dict[str, int]
    notes: tuple[str, ...]


def find_start(work: StageWork) -> AttemptStart:
    """Look at what earlier attempts saved and how they ended; raises `StorageError`."""
    names = attempt_names(work.store, work.paths)
    if not names:
        return AttemptStart((), (), None, {}, ())
    records = (read_attempt(work.store, work.paths, name) for name in reversed(names[-NUM_RECORDS:]))
    history = tuple(record for record in records if record is not None)
    survey = resume_points(work.store, work.paths, work.node.resume.policy, work.run_id, NUM_POINTS)
    newest = survey.points[0] if survey.points else None
    left_out = point_to_leave_out(failures_in_place(history, datetime.now(UTC)), newest)
    lowered = lowered_settings(work.node.config, work.node.retry.on_oom, history, work.run_id)
    notes = [f"{text}; going on without it" for text in survey.passed_over]
    if left_out is not None:
        notes.append(f"leaving out the saved step {left_out.step}: attempts that went on from it failed at one place")
    if lowered:
        notes.append(f"lowered for want of memory: {', '.join(f'{name} {value}' for name, value in lowered.items())}")
    points = tuple(point for point in survey.points if point != left_out)
    return AttemptStart(history, points, left_out, lowered, tuple(notes))
