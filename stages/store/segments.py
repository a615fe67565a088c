"""Metrics and logs as numbered objects: an object cannot be appended to."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from stages.contract import Strict
from stages.errors import UserError
from stages.store.attempts import attempt_names
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import AttemptPaths, StagePaths
from stages.store.records import decode

FLUSH_SECONDS = 30.0


class MetricRow(Strict):
    """The `group/name` numbers of one step of one attempt."""

    epoch: int
    step: int
    numbers: dict[str, float]


class SegmentWriter:
    """Collects text and stores it in numbered objects: on `flush`, and while text comes at most every 30 s.

    Belongs to one attempt, whose threads may add text while one of them stores what is there.
    """

    def __init__(
        self,
        store: ConditionalStore,
        path_of: Callable[[int], str],
        flush_seconds: float = FLUSH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._path_of = path_of
        self._flush_seconds = flush_seconds
        self._clock = clock
        self._flushed = clock()
        self._number = 0
        self._lines = deque[str]()
        self._storing = threading.Lock()
        self._pending = b""

    def append(self, text: str) -> None:
        """Add text, with its own line end; may raise `StorageError`, after which nothing is lost."""
        self._lines.append(text)
        self.flush_if_due()

    def flush_if_due(self) -> None:
        """Store what was collected if the last time is long enough ago."""
        if self._clock() - self._flushed >= self._flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Store everything collected so far.

        Raises:
            StorageError: the store could not be written; the text is kept for the next call.
        """
        with self._storing:
            self._flushed = self._clock()
            self._store_pending()
            self._pending = "".join(self._lines.popleft() for _ in range(len(self._lines))).encode()
            self._store_pending()

    def _store_pending(self) -> None:
        """A segment keeps its number and bytes until it is stored, so that a lost answer makes no second copy."""
        if not self._pending:
            return
        try:
            self._store.create(self._path_of(self._number), self._pending)
        except PreconditionFailed:
            stored = self._store.get(self._path_of(self._number))
            if stored is None or stored.data != self._pending:
                raise
        self._number += 1
        self._pending = b""


class MetricsWriter:
    """Writes the metric rows of one attempt."""

    def __init__(self, store: ConditionalStore, paths: AttemptPaths, epoch: int) -> None:
        self._segments = SegmentWriter(store, paths.metrics)
        self._epoch = epoch

    def append(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add one row.

        Raises:
            UserError: a number is NaN or infinite.
        """
        for name, value in numbers.items():
            if not math.isfinite(value):
                raise UserError(f"{name} is {value} at step {step}: the run diverged; look at the steps before it")
        row = MetricRow(epoch=self._epoch, step=step, numbers=dict(numbers))
        self._segments.append(row.model_dump_json() + "\n")

    def flush(self) -> None:
        """Store all rows so far; raises `StorageError`."""
        self._segments.flush()


def _text(store: ConditionalStore, folder: str) -> str:
    stored = (store.get(listed.path) for listed in store.list(folder))
    return b"".join(segment.data for segment in stored if segment is not None).decode(errors="replace")


def read_metrics(store: ConditionalStore, paths: StagePaths) -> list[MetricRow]:
    """The rows of all attempts by step; where attempts overlap, those of the highest epoch."""
    merged: dict[int, MetricRow] = {}
    for attempt in attempt_names(store, paths):
        folder = paths.attempt(attempt).metrics_folder
        for line in _text(store, folder).splitlines():
            row = decode(MetricRow, line.encode(), store.location(folder))
            earlier = merged.get(row.step)
            if earlier is not None and earlier.epoch == row.epoch:
                row = row.model_copy(update={"numbers": earlier.numbers | row.numbers})
            merged[row.step] = row
    return [merged[step] for step in sorted(merged)]


def read_log(store: ConditionalStore, paths: StagePaths, attempt: str | None = None) -> str:
    """What an attempt printed; without a name, the newest attempt that printed anything."""
    names = [attempt] if attempt is not None else reversed(attempt_names(store, paths))
    return next((text for name in names if (text := _text(store, paths.attempt(name).log_folder))), "")
