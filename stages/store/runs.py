"""The archive of runs: what was planned and what happened, kept apart from any scheduler's database."""

import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from stages.contract import Strict
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import Holder
from stages.store.layout import run_folder, runs_folder
from stages.store.marker import ensure_marker
from stages.store.records import read_record, write_record

StageOutcome = Literal[
    "waiting", "running", "waiting_approval", "reused", "done", "resumed", "passed", "skipped", "failed", "stopped"
]

RunOutcome = Literal["running", "waiting_approval", "succeeded", "failed", "stopped"]


class RunStage(Strict):
    """One node of a run."""

    id: str
    """Its name in the pipeline."""
    kind: str
    key: str | None = None
    """Identity; none for a gate."""
    decision: str = ""
    """What the plan decided."""
    reason: str = ""
    """Why it did."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Name to the output or source that it is, as the pipeline writes it."""
    settings: str = ""
    """The resolved settings as JSON text."""
    outcome: StageOutcome = "waiting"
    message: str = ""
    lines: tuple[str, ...] = ()
    """A gate's requirements with their numbers."""
    seconds: float = 0.0
    first_step: int | None = None
    """The first step that this run executed; none where it executed no steps."""
    last_step: int | None = None
    numbers: dict[str, float] = Field(default_factory=dict)


class RunRecord(Strict):
    """What `run.json` says."""

    run_id: str
    pipeline: str
    description: str = ""
    path: str = ""
    """The pipeline's file."""
    profile: str | None
    argv: tuple[str, ...]
    started: str
    """UTC, ISO 8601."""
    finished: str | None = None
    outcome: RunOutcome = "running"
    message: str = ""
    holder: Holder | None = None
    """The process of the run, by which an unfinished record of a dead one is told."""
    run_url: str | None = None
    deviations: tuple[str, ...] = ()
    """What turned out otherwise than planned, one line each."""
    stages: tuple[RunStage, ...] = ()


def new_run_id(now: datetime | None = None) -> str:
    """A name for a run that starts now."""
    return run_id_of(now or datetime.now(UTC), uuid.uuid4().hex[:8])


def run_id_of(started: datetime, unique: str) -> str:
    """A name that sorts by time, to the millisecond: a run that reuses everything takes less than a second."""
    moment = started.astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z-{unique}"


def is_run_id(text: str) -> bool:
    """Whether text has the form of a run's name; the first ones had no milliseconds."""
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}(\.[0-9]{3})?Z-[0-9A-Za-z-]+", text) is not None


def _folder(pipeline: str, run_id: str) -> str:
    return run_folder(pipeline, int(run_id[:4]), run_id)


def write_plan(store: ConditionalStore, pipeline: str, run_id: str, plan: bytes) -> None:
    """Archive a run's plan, as JSON: the first thing that a run writes, so it marks the store too.

    A run that goes on under the same id keeps its first plan.
    """
    ensure_marker(store)
    with suppress(PreconditionFailed):
        store.create(f"{_folder(pipeline, run_id)}/plan.json", plan)


def write_run(store: ConditionalStore, record: RunRecord) -> None:
    """Archive what happened so far; replaces the run's earlier record."""
    write_record(store, f"{_folder(record.pipeline, record.run_id)}/run.json", record)


def list_runs(store: ConditionalStore, pipeline: str) -> list[str]:
    """Ids of the pipeline's recorded runs, oldest first."""
    paths = [listed.path for listed in store.list(runs_folder(pipeline))]
    return sorted(path.split("/")[-2] for path in paths if path.endswith("/run.json"))


def read_run(store: ConditionalStore, pipeline: str, run_id: str) -> RunRecord | None:
    """What one run recorded."""
    return read_record(store, f"{_folder(pipeline, run_id)}/run.json", RunRecord)


def latest_run(store: ConditionalStore, pipeline: str) -> RunRecord | None:
    """The pipeline's run that started last."""
    ids = list_runs(store, pipeline)
    return read_run(store, pipeline, ids[-1]) if ids else None
