"""A system under measurement: a process that runs passes on request, see `speed_worker.py`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from speed_worker import Sizes

HERE = Path(__file__).parent


class Times(NamedTuple):
    """Of one pass: by the clock, and of all its threads together."""

    seconds: float
    cpu_seconds: float


class System:
    """A process that runs passes on request."""

    def __init__(self, python: str | Path, script: str, sizes: Sizes) -> None:
        self._process = subprocess.Popen(
            [python, HERE / script, json.dumps(sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._answer() != "ready":
            sys.exit(f"{script} did not start: run `{python} {HERE / script} '{json.dumps(sizes)}'` to see why")

    def run(self, what: str) -> Times:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return Times(*map(float, self._answer().split()))

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def best(times: list[Times]) -> Times:
    """The least of each."""
    return Times(*map(min, zip(*times, strict=True)))
