"""Resumable steps: a step exists only when its own commit record does."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from stages.contract import ProgressPoint, Strict
from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, Listed, PreconditionFailed
from stages.store.layout import AttemptPaths, StagePaths, attempt_epoch
from stages.store.records import encode, read_record

COMMIT_SUFFIX = ".commit.json"
KEEP_LAST = 2
"""Committed steps that an attempt keeps: the newest, and one to fall back on."""


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


def _is_whole(store: ConditionalStore, paths: AttemptPaths, step: int, listed: Sequence[Listed]) -> bool:
    commit = read_record(store, paths.progress_commit(step), ProgressCommit)
    return commit is not None and set(commit.files) <= set(_files(paths.progress(step), listed))


def _steps(paths: AttemptPaths, listed: Sequence[Listed]) -> list[int]:
    """Steps with a commit record, ascending."""
    folder = f"{paths.progress_folder}/"
    names = (found.path[len(folder) :] for found in listed if found.path.startswith(folder))
    return sorted(int(name.removesuffix(COMMIT_SUFFIX)) for name in names if name.endswith(COMMIT_SUFFIX))


def committed_points(store: ConditionalStore, paths: StagePaths) -> list[ProgressPoint]:
    """Committed steps of all attempts whose files are as they were: highest step first, then highest epoch."""
    listed = store.list(paths.attempts)
    start = len(paths.attempts) + 1
    attempts = sorted({found.path[start:].partition("/")[0] for found in listed})
    points = [
        ProgressPoint(attempt=attempt, step=step)
        for attempt in attempts
        for step in _steps(paths.attempt(attempt), listed)
        if _is_whole(store, paths.attempt(attempt), step, listed)
    ]
    return sorted(points, key=lambda point: (point.step, attempt_epoch(point.attempt)), reverse=True)


class StoreProgress:
    """The progress area of one attempt; implements `contract.ProgressArea`."""

    def __init__(
        self,
        store: ConditionalStore,
        paths: StagePaths,
        attempt: str,
        resume: Sequence[ProgressPoint],
        before_commit: Callable[[], None],
    ) -> None:
        """`before_commit` stores what must not be lost when a later attempt resumes after the step: its metrics."""
        self._store = store
        self._paths = paths
        self._own = paths.attempt(attempt)
        self._resume = tuple(resume)
        self._before_commit = before_commit

    def candidates(self) -> Sequence[ProgressPoint]:
        return self._resume

    def uri(self, point: ProgressPoint) -> str:
        return self._store.location(self._paths.attempt(point.attempt).progress(point.step))

    def new_uri(self, step: int) -> str:
        return self._store.location(self._own.progress(step))

    def commit(self, step: int) -> None:
        """Record that `step` is completely written, and drop the attempt's steps before the last two.

        Raises:
            StorageError: the step has no files, or the store could not be written.
        """
        files = _files(self._own.progress(step), self._store.list(self._own.progress(step)))
        if not files:
            raise StorageError(f"{self.new_uri(step)}: step {step} is not committed, nothing was written there")
        self._before_commit()
        record = ProgressCommit(step=step, created=datetime.now(UTC).isoformat(), files=files)
        try:
            self._store.create(self._own.progress_commit(step), encode(record))
        except PreconditionFailed:
            # The folder is this attempt's alone: the record is our own, its answer was lost.
            stored = read_record(self._store, self._own.progress_commit(step), ProgressCommit)
            if stored is None or stored.files != files:
                raise
        self._drop_old()

    def _drop_old(self) -> None:
        listed = self._store.list(self._own.progress_folder)
        for step in _steps(self._own, listed)[:-KEEP_LAST]:
            # The record goes first: a step without its files never looks committed.
            self._store.delete(self._own.progress_commit(step))
            for file in _files(self._own.progress(step), listed):
                self._store.delete(f"{self._own.progress(step)}/{file.path}")
