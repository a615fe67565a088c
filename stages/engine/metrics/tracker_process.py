"""The process of one tracker: `python -m stages.engine.metrics.tracker_process` reads a run and its rows from stdin.

It ends with its input. What is wrong is its own affair: the stage that writes to it does not wait, and the numbers are
in the store.
"""

import signal
import sys
from collections.abc import Iterable

from stages.engine.metrics.sinks import open_sink
from stages.engine.metrics.tracked_run import Row, TrackedRun


def main() -> int:
    """Show what stands in stdin; returns the exit code."""
    # A stage that is asked to stop still has something to say; its process group is asked as a whole.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        show(sys.stdin)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"the package {error.name} is not installed; the extra `trackers` brings it\n")
        return 1
    return 0


def show(lines: Iterable[str]) -> None:
    """Open the tracker that the first line describes, and give it the rows of the others."""
    given = iter(lines)
    sink = open_sink(TrackedRun.model_validate_json(next(given)))
    for line in given:
        row = Row.model_validate_json(line)
        if row.outcome is not None:
            sink.close(row.outcome)
            return
        sink.add(row.step, row.numbers)
    # The input has ended without a last row: whoever wrote it was killed.
    sink.close("failed")


if __name__ == "__main__":
    sys.exit(main())
