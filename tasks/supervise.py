"""Watching one stage process to its end: deadlines, requests to stop, and the cause of the end."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from stages.contract import Beat, StageResult
from tasks.causes import Cause, OutOfMemoryWatch, cause_of_exit, describe_exit
from tasks.launchers.launcher import Child
from tasks.lost_lease import LostLease
from tasks.stopping import StopSignal

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Deadlines:
    """Seconds that a stage's process may take; None means for ever.

    Attributes:
        total: from its start to its end.
        stall: between two beats, and from its start to the first one.
        grace: from SIGTERM to SIGKILL.
    """

    total: float | None
    stall: float | None
    grace: float


@dataclass(frozen=True)
class Ending:
    """How a process ended; `cause` is None when the work is done."""

    cause: Cause | None
    message: str
    result: StageResult | None


class BeatWatch:
    """Passes beats on, and knows when the last one came and which step it told of."""

    def __init__(self, forward: Callable[[Beat], None]) -> None:
        self._forward = forward
        self._last = time.monotonic()
        self.last_step: int | None = None

    def __call__(self, beat: Beat) -> None:
        self._last = time.monotonic()
        self.last_step = beat.step
        self._forward(beat)

    def idle_seconds(self) -> float:
        """Time since the last beat, at first since the start."""
        return time.monotonic() - self._last


def supervise(child: Child, beats: BeatWatch, deadlines: Deadlines, stop: StopSignal, lost: LostLease) -> Ending:
    """Wait for the end of `child`, and bring it about when a deadline passes, `stop` is set or the lease is lost.

    A child whose lease is lost is killed at once, because what it writes may belong to nobody. Every other one gets
    SIGTERM and `deadlines.grace` to save its progress. On return nothing of its process group runs.
    """
    memory = OutOfMemoryWatch()
    started = time.monotonic()
    asked: tuple[Cause, str] | None = None
    kill_at = float("inf")
    try:
        while (returncode := child.wait(POLL_SECONDS)) is None:
            reason = lost.reason()
            if reason is not None:
                asked = reason
                break
            if asked is None:
                asked = _reason_to_stop(beats, deadlines, stop, time.monotonic() - started)
                if asked is not None:
                    kill_at = time.monotonic() + deadlines.grace
                    child.terminate()
            elif time.monotonic() >= kill_at:
                break
    finally:
        child.close()
    result = child.result()
    if asked is not None and not _is_done(returncode, result):
        return Ending(asked[0], asked[1], result)
    assert returncode is not None
    cause = cause_of_exit(returncode, result, memory.happened())
    detail = result.message if result is not None else ""
    return Ending(cause, child.blamed + (detail or describe_exit(returncode)), result)


def _is_done(returncode: int | None, result: StageResult | None) -> bool:
    return returncode == 0 and result is not None and result.outcome == "done"


def _reason_to_stop(
    beats: BeatWatch, deadlines: Deadlines, stop: StopSignal, seconds: float
) -> tuple[Cause, str] | None:
    if stop.requested:
        return ("stopped", stop.reason)
    if deadlines.total is not None and seconds > deadlines.total:
        return ("timeout", f"took longer than {deadlines.total:g} s")
    if deadlines.stall is not None and beats.idle_seconds() > deadlines.stall:
        return ("stalled", f"no beat for {deadlines.stall:g} s")
    return None
