"""The `temper` command as a process of its own, to be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TEMPER = Path(__file__).parents[1] / "probe" / "probe_temper.py"

StartTemper = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_temper(own_places: None) -> Iterator[StartTemper]:
    """Starts `temper …` in its own process group, which does not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(TEMPER), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


WaitFor = Callable[..., None]


@pytest.fixture
def wait_for() -> WaitFor:
    """Waits for a condition, and fails with what was waited for."""

    def wait(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
            time.sleep(0.02)

    return wait
