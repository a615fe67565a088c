"""Attempts that fail one after another at the same step: what was gained, and when to stop."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from stages.contract import ProgressPoint
from stages.store.attempts import AttemptRecord

MAX_FAILURES = 3
WINDOW = timedelta(days=1)
"""Failures count for so long, without the time of the attempts themselves: each may take more than a day."""
CAUSES = frozenset({"infra", "oom", "stalled", "timeout"})
"""Failures that may come from the step itself; a store that does not answer says nothing about it."""
APART = frozenset({"running", "preempted", "fenced"})
"""Outcomes that say nothing about the step: the run itself was killed, or somebody ended the attempt."""


def failures_in_place(history: Sequence[AttemptRecord], now: datetime) -> list[AttemptRecord]:
    """The newest failures in a row that reached the same step under the same settings within `WINDOW`.

    Args:
        history: attempts at the stage, newest first.
        now: the time, with its zone.
    """
    failures: list[AttemptRecord] = []
    idle, later = timedelta(), now
    for record in history:
        started = datetime.fromisoformat(record.started)
        idle += later - (datetime.fromisoformat(record.ended) if record.ended else started)
        later = started
        if record.outcome in APART:
            continue
        if record.outcome != "failed" or record.cause not in CAUSES:
            break
        if idle > WINDOW:
            break
        if failures and (record.last_step, record.lowered) != (failures[0].last_step, failures[0].lowered):
            break
        failures.append(record)
    return failures


def point_to_leave_out(failures: Sequence[AttemptRecord], newest: ProgressPoint | None) -> ProgressPoint | None:
    """The newest saved step, before the last failure that is allowed, if it may be the reason: once in a row."""
    if newest is None or len(failures) < MAX_FAILURES - 1 or failures[0].resumed_from != newest:
        return None
    return None if any(failure.left_out is not None for failure in failures) else newest


def describe_loop(failures: Sequence[AttemptRecord]) -> str | None:
    """Why there is no further attempt; None while there may be one."""
    if len(failures) < MAX_FAILURES:
        return None
    step = failures[0].last_step
    where = f"after step {step}" if step else "before its first step was done"
    left_out = next((failure.left_out for failure in failures if failure.left_out is not None), None)
    tried = f", one of them without the saved step {left_out.step}" if left_out is not None else ""
    return (
        f"{len(failures)} attempts in a row failed {where}{tried}, so it is not tried again by itself; "
        "look at its log, mend the cause and start the run again, which goes on from what is saved"
    )
