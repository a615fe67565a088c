"""The stage's side of trackers: each is a process of its own, which gets rows through a pipe that nobody waits for."""

import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from stages.engine.metrics.tracked_run import Row, RunOutcome, TrackedRun
from stages.errors import PreemptedError

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 15.0
"""That a stage which has ended waits for its trackers, all together."""
WAITING_BYTES = 2**22
"""Rows that a tracker has not read yet; what comes while there are so many is dropped."""
PROGRAM = "stages.engine.metrics.tracker_process"


class Follower:
    """A tracker's process. No method raises, whatever it does, and only `wait` takes time; a fault is one warning."""

    def __init__(self, run: TrackedRun, folder: Path, python: str = sys.executable) -> None:
        """Start the process; what it prints goes to a file in `folder`."""
        self._name = run.tracker.name
        self._warned = False
        self._unwritten = b""
        self._log = folder / f"tracker-{self._name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with self._log.open("wb") as log:
                command = [python, "-m", PROGRAM]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, bufsize=0)
        except OSError as error:
            self._warn(f"cannot be started: {error}")
            return
        assert process.stdin is not None
        self._process, self._pipe = process, process.stdin
        os.set_blocking(self._pipe.fileno(), False)
        self._send(run.model_dump_json())

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Pass on the numbers of a step, or drop them where the tracker is far behind."""
        if len(self._unwritten) > WAITING_BYTES:
            self._warn("does not keep up")
        else:
            self._send(Row(step=step, numbers=dict(numbers)).model_dump_json())

    def finish(self, outcome: RunOutcome) -> None:
        """Say how the attempt ended."""
        self._send(Row(outcome=outcome).model_dump_json())

    def wait(self, deadline: float) -> None:
        """Let the process end by itself until `deadline` by the monotonic clock, and kill it then."""
        while self._unwritten and (seconds := deadline - time.monotonic()) > 0:
            select.select([], [self._pipe], [], seconds)
            self._write()
        if self._process is None:
            return
        self._pipe.close()
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._warn(f"was not done {CLOSE_SECONDS:g} s after the stage")
            return
        if self._process.returncode:
            self._warn(self._last_words())

    def _send(self, line: str) -> None:
        if self._process is not None:
            self._unwritten += line.encode() + b"\n"
            self._write()

    def _write(self) -> None:
        """Write what the pipe takes now."""
        try:
            written = os.write(self._pipe.fileno(), self._unwritten)
            self._unwritten = self._unwritten[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unwritten = b""
            self._process = None
            self._warn(self._last_words())

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return "has ended: " + next((line for line in reversed(lines) if line.strip()), "it says not why")

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("tracker %s %s; all metrics are in the store", self._name, what)


class Followers:
    """The trackers of a stage."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self._followers = followers

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Pass the numbers of a step on to each."""
        for follower in self._followers:
            follower.add(step, numbers)

    def close(self, outcome: RunOutcome) -> None:
        """End them all, within `CLOSE_SECONDS`."""
        deadline = time.monotonic() + CLOSE_SECONDS
        for follower in self._followers:
            follower.finish(outcome)
        for follower in self._followers:
            follower.wait(deadline)


NOBODY = Followers(())


@contextmanager
def following(runs: Sequence[TrackedRun], folder: Path) -> Generator[Followers]:
    """Trackers that run as long as the block does, and are told how that ended; `folder` takes what they print."""
    if runs:
        folder.mkdir(parents=True, exist_ok=True)
    followers = Followers([Follower(run, folder) for run in runs])
    outcome: RunOutcome = "failed"
    try:
        yield followers
        outcome = "done"
    except PreemptedError:
        outcome = "stopped"
        raise
    finally:
        followers.close(outcome)
