"""Stands in for an interpreter: `probe_python.py -m stages request.json`, with the probe in the catalog.

`PROBE_KILL=stage:step:file,…` has it killed after that step of that stage, once: the file is made then. Of several
processes it is the last one.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from temper_probe import register

from stages.__main__ import main
from stages.context import RunContext

register()


def kill_at(stage: str, step: int, once: Path) -> None:
    """SIGKILL this process right after `step` of `stage`, if the file `once` is not there yet."""
    request = json.loads(Path(sys.argv[3]).read_text())
    if request["stage_id"] != stage or once.exists():
        return
    cluster = request["cluster"]
    if cluster and cluster["process_id"] != cluster["num_processes"] - 1:
        return
    beat = RunContext.beat
    last_step = step

    def beat_and_die(self: RunContext, step: int, total: int, numbers: Mapping[str, float]) -> None:
        beat(self, step, total, numbers)
        if step == last_step:
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    RunContext.beat = beat_and_die


for kill in filter(None, os.environ.get("PROBE_KILL", "").split(",")):
    name, at, file = kill.split(":")
    kill_at(name, int(at), Path(file))
sys.exit(main(sys.argv[3:]))
