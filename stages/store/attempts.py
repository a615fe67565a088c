"""The record of each attempt: who tried, when, and how it ended."""

from typing import Literal

from pydantic import Field

from stages.contract import ProgressPoint, Strict
from stages.store.conditional import ConditionalStore
from stages.store.holder import Holder
from stages.store.layout import StagePaths
from stages.store.provenance import Provenance
from stages.store.records import read_record, write_record

Outcome = Literal["running", "committed", "superseded", "failed", "preempted", "fenced"]


class AttemptRecord(Strict):
    """What `attempt.json` says."""

    attempt: str
    holder: Holder
    started: str
    """UTC, ISO 8601."""
    ended: str = ""
    """As `started`; empty while it runs, and where an older version wrote the record."""
    run_id: str = ""
    """The run that it was made for."""
    provenance: Provenance | None = None
    """Of the process that watched it; none where an older version wrote the record."""
    resumed_from: ProgressPoint | None = None
    """The saved step that it was to go on from."""
    left_out: ProgressPoint | None = None
    """A newer saved step that it left out, because attempts that went on from it failed."""
    lowered: dict[str, int] = Field(default_factory=dict)
    """Settings that were lowered for it because an earlier attempt of the run ran out of memory."""
    outcome: Outcome = "running"
    cause: str = ""
    """Why it failed, as in `retry.on`."""
    message: str = ""
    first_step: int | None = None
    """The first step that it executed."""
    last_step: int | None = None
    """The last step that it is known to have reached."""


def write_attempt(store: ConditionalStore, paths: StagePaths, record: AttemptRecord) -> None:
    """Write the record, or replace the attempt's earlier one."""
    write_record(store, paths.attempt(record.attempt).record, record)


def read_attempt(store: ConditionalStore, paths: StagePaths, attempt: str) -> AttemptRecord | None:
    """The attempt's record, or None if it wrote none."""
    return read_record(store, paths.attempt(attempt).record, AttemptRecord)


def attempt_names(store: ConditionalStore, paths: StagePaths) -> list[str]:
    """Attempts that wrote anything, oldest epoch first."""
    start = len(paths.attempts) + 1
    return sorted({listed.path[start:].partition("/")[0] for listed in store.list(paths.attempts)})
