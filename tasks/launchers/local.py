"""A stage's process on this machine: its own session, a life line, a pipe of beats and one of output."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from stages.contract import RESULT_FILE, Beat, StageResult
from tasks.launchers.launcher import Launch

REQUEST_FILE = "request.json"
READER_SECONDS = 5.0
LINE_BYTES = 65536
PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
"""Accelerator to `JAX_PLATFORMS`, so that a missing device is an error and not a silent fall-back to the CPU."""


class LocalChild:
    """A running stage and everything that its process group started."""

    def __init__(self, launch: Launch) -> None:
        self._scratch = Path(launch.request.scratch)
        self._scratch.mkdir(parents=True, exist_ok=True)
        beats, beat_fd = os.pipe()
        try:
            request = launch.request.model_copy(update={"beat_fd": beat_fd})
            file = self._scratch / REQUEST_FILE
            file.write_text(request.model_dump_json(indent=1))
            self._process = subprocess.Popen(
                [launch.python or sys.executable, "-m", "stages", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(launch),
                pass_fds=(beat_fd, *launch.inherited),
                start_new_session=True,
            )
        except OSError:
            os.close(beats)
            raise
        finally:
            os.close(beat_fd)
        assert self._process.stdout is not None
        self._readers = [
            _start_reader(os.fdopen(beats, "rb"), lambda line: _read_beat(line, launch)),
            _start_reader(self._process.stdout, launch.on_line),
        ]

    @property
    def pid(self) -> int:
        """The leader of the process group."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return code of the leader, None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """As `poll`, after at most `seconds`."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def await_end(self) -> None:
        """Return when the leader has ended."""
        self._process.wait()

    def terminate(self) -> None:
        """Ask the group to save and stop."""
        _signal_group(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the group now."""
        _signal_group(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of the group and return when nothing of it runs any more."""
        while group_runs(self.pid):
            self.kill()
            self._process.poll()
            time.sleep(0.01)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        for reader in self._readers:
            reader.join(READER_SECONDS)

    @property
    def blamed(self) -> str:
        """Nobody in particular: the process is alone."""
        return ""

    def result(self) -> StageResult | None:
        """What the process wrote about its end; None if it did not get that far."""
        try:
            return StageResult.model_validate_json((self._scratch / RESULT_FILE).read_text())
        except (OSError, ValidationError):
            return None


def group_runs(group: int) -> bool:
    """Whether a process of the group is running; one that only waits to be reaped is not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(_is_running_member(entry, group) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _is_running_member(entry: Path, group: int) -> bool:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    state, process_group = fields[0], int(fields[2])
    return process_group == group and state not in {"Z", "X"}


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _environment(launch: Launch) -> dict[str, str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **launch.environment}
    if launch.accelerator in PLATFORMS:
        environment["JAX_PLATFORMS"] = PLATFORMS[launch.accelerator]
    return environment


def _start_reader(stream: IO[bytes], handle: Callable[[str], None]) -> threading.Thread:
    def read() -> None:
        with stream:
            for line in iter(lambda: stream.readline(LINE_BYTES), b""):
                handle(line.decode(errors="replace").rstrip("\r\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _read_beat(line: str, launch: Launch) -> None:
    try:
        beat = Beat.model_validate_json(line)
    except ValidationError:
        launch.on_line(f"not a beat: {line[:200]}")
    else:
        launch.on_beat(beat)
