"""Resumable steps: a step exists only when its own commit record does."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stages.contract import ProgressPoint, Saving, Strict
from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, Listed, PreconditionFailed
from stages.store.layout import AttemptPaths, StagePaths, attempt_epoch
from stages.store.lease import LeaseRecord
from stages.store.moments import now
from stages.store.records import encode, read_record

COMMIT_SUFFIX = ".commit.json"


class ProgressFile(Strict):
    """One file of a step, relative to the step's folder."""

    path: str
    size: int
    generation: str


class ProgressCommit(Strict):
    """The record that makes a step exist."""

    step: int
    created: str
    """UTC, ISO 8601."""
    files: tuple[ProgressFile, ...]


def _files(folder: str, listed: Sequence[Listed]) -> tuple[ProgressFile, ...]:
    start = len(folder) + 1
    inside = (found for found in listed if found.path.startswith(f"{folder}/"))
    return tuple(ProgressFile(path=f.path[start:], size=f.size, generation=f.generation) for f in inside)


@dataclass(frozen=True)
class ProgressSurvey:
    """What a stage could go on from.

    Attributes:
        points: committed steps whose files are as they were: highest step first, then highest epoch.
        passed_over: each newer step that does not count, in words.
    """

    points: list[ProgressPoint]
    passed_over: list[str]


def survey_progress(
    store: ConditionalStore,
    paths: StagePaths,
    counts: Callable[[str], bool] | None = None,
    limit: int | None = None,
) -> ProgressSurvey:
    """Look for steps to go on from, best first.

    Args:
        store: where to look.
        paths: of the stage.
        counts: whether the steps of an attempt count; all do if left out.
        limit: how many points are enough; each costs a read.
    """
    listed = store.list(paths.attempts)
    survey = ProgressSurvey([], [])
    for point in _begun_points(paths, listed):
        if len(survey.points) == limit:
            break
        if counts is not None and not counts(point.attempt):
            continue
        fault = _fault(store, paths.attempt(point.attempt), point.step, listed)
        if fault is None:
            survey.points.append(point)
        elif not survey.points:
            survey.passed_over.append(f"step {point.step} of attempt {point.attempt} {fault}")
    return survey


def committed_points(store: ConditionalStore, paths: StagePaths) -> list[ProgressPoint]:
    """Committed steps of all attempts whose files are as they were: highest step first, then highest epoch."""
    return survey_progress(store, paths).points


def _begun_points(paths: StagePaths, listed: Sequence[Listed]) -> list[ProgressPoint]:
    """Every step of which there is anything, best first."""
    start = len(paths.attempts) + 1
    begun: set[tuple[int, int, str]] = set()
    for found in listed:
        attempt, _, inside = found.path[start:].partition("/progress/")
        step = inside.partition("/")[0].removesuffix(COMMIT_SUFFIX)
        if step.isdecimal() and "/" not in attempt:
            begun.add((int(step), attempt_epoch(attempt), attempt))
    return [ProgressPoint(attempt=attempt, step=step) for step, _, attempt in sorted(begun, reverse=True)]


def _fault(store: ConditionalStore, paths: AttemptPaths, step: int, listed: Sequence[Listed]) -> str | None:
    """Why a step does not count; None if it does."""
    if step not in _steps(paths, listed):
        return "was never committed"
    commit = read_record(store, paths.progress_commit(step), ProgressCommit)
    if commit is None:
        return "was dropped"
    lost = set(commit.files) - set(_files(paths.progress(step), listed))
    return f"lost {len(lost)} of its {len(commit.files)} files, or they changed" if lost else None


def _steps(paths: AttemptPaths, listed: Sequence[Listed]) -> list[int]:
    """Steps with a commit record, ascending."""
    folder = f"{paths.progress_folder}/"
    names = (found.path[len(folder) :] for found in listed if found.path.startswith(folder))
    return sorted(int(name.removesuffix(COMMIT_SUFFIX)) for name in names if name.endswith(COMMIT_SUFFIX))


class StoreProgress:
    """The progress area of one attempt; implements `contract.ProgressArea`."""

    def __init__(
        self,
        store: ConditionalStore,
        paths: StagePaths,
        attempt: str,
        resume: Sequence[ProgressPoint],
        before_commit: Callable[[], None],
        saving: Saving | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`before_commit` stores what must not be lost when a later attempt resumes after the step: its metrics."""
        self._store = store
        self._paths = paths
        self._attempt = attempt
        self._own = paths.attempt(attempt)
        self._resume = tuple(resume)
        self._before_commit = before_commit
        self._saving = saving or Saving()
        self._clock = clock
        self._saved_at = clock()

    def candidates(self) -> Sequence[ProgressPoint]:
        return self._resume

    def uri(self, point: ProgressPoint) -> str:
        return self._store.location(self._paths.attempt(point.attempt).progress(point.step))

    def new_uri(self, step: int) -> str:
        """Folder to write `step` to; asking for it begins a save."""
        self._saved_at = self._clock()
        return self._location(step)

    def save_due(self) -> bool:
        return self._clock() - self._saved_at >= self._saving.every_seconds

    def commit(self, step: int) -> None:
        """Record that `step` is completely written, and drop those of the attempt's steps that need not be kept.

        Raises:
            StorageError: the step has no files, or the store could not be written.
        """
        files = _files(self._own.progress(step), self._store.list(self._own.progress(step)))
        if not files:
            raise StorageError(f"{self._location(step)}: step {step} is not committed, nothing was written there")
        self._before_commit()
        record = ProgressCommit(step=step, created=now(), files=files)
        try:
            self._store.create(self._own.progress_commit(step), encode(record))
        except PreconditionFailed:
            # The folder is this attempt's alone: the record is our own, its answer was lost.
            stored = read_record(self._store, self._own.progress_commit(step), ProgressCommit)
            if stored is None or stored.files != files:
                raise
        self._drop_old()

    def _location(self, step: int) -> str:
        return self._store.location(self._own.progress(step))

    def _drop_old(self) -> None:
        lease = read_record(self._store, self._paths.lease, LeaseRecord)
        if lease is not None and lease.attempt != self._attempt:
            # Who took the lease may be about to go on from any of these steps.
            return
        listed = self._store.list(self._own.progress_folder)
        for step in _steps(self._own, listed)[: -self._saving.keep_last]:
            if self._saving.keep_every is not None and step % self._saving.keep_every == 0:
                continue
            # The record goes first: a step without its files never looks committed.
            self._store.delete(self._own.progress_commit(step))
            for file in _files(self._own.progress(step), listed):
                self._store.delete(f"{self._own.progress(step)}/{file.path}")
