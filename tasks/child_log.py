"""The output of a stage's process: all of it to the store, a limited rate of it to the run's log."""

import threading
import time
from collections import deque
from collections.abc import Callable

from stages.errors import StorageError
from stages.store.segments import SegmentWriter

LINES_PER_SECOND = 20
TAIL_LINES = 20


class ChildLog:
    """Takes lines from the reader's thread."""

    def __init__(self, segments: SegmentWriter, emit: Callable[[str], None]) -> None:
        self._segments = segments
        self._emit = emit
        self._lock = threading.Lock()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._second = 0
        self._emitted = 0
        self._left_out = 0

    def __call__(self, line: str) -> None:
        """Keep one line."""
        with self._lock:
            self._tail.append(line)
            self._keep(lambda: self._segments.append(f"{line}\n"))
            self._pass_on(line)

    def close(self) -> None:
        """Upload what is left."""
        with self._lock:
            self._keep(self._segments.flush)
            self._report_left_out()

    def tail(self) -> str:
        """The last lines, for an error message."""
        with self._lock:
            return "\n".join(self._tail)

    def _keep(self, store: Callable[[], None]) -> None:
        """A line that could not be stored is kept for the next time; the stage does not fail for its log."""
        try:
            store()
        except StorageError as error:
            self._emit(f"the log could not be stored: {error}")

    def _pass_on(self, line: str) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._report_left_out()
            self._second, self._emitted = second, 0
        if self._emitted < LINES_PER_SECOND:
            self._emitted += 1
            self._emit(line)
        else:
            self._left_out += 1

    def _report_left_out(self) -> None:
        if self._left_out:
            self._emit(f"… {self._left_out} lines left out here; `temper logs` shows all")
            self._left_out = 0
