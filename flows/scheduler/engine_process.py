"""The process of one scheduled run: `python -m flows.scheduler.engine_process`, the command of the work pool.

Prefect's engine, and before it what makes the process one of a `temper up`, where one started it. It differs from the
engine's own command in that the run lives on when the worker dies, and ends when `temper up` does.
"""

import os
import runpy
import sys
from pathlib import Path

from flows.scheduler.engines import register
from flows.scheduler.leash import hang_on

UP_FOLDER = "TEMPER_UP_FOLDER"
LEASH = "TEMPER_UP_LEASH"
RUN_LOG = "runs.log"
ENGINES = "engines"


def main() -> None:
    """Run what `PREFECT__FLOW_RUN_ID` names."""
    leash = os.environ.get(LEASH)
    if leash is not None:
        if not hang_on(Path(leash)):
            sys.exit("the `temper up` that started this run is gone")
        folder = Path(os.environ[UP_FOLDER])
        register(folder / ENGINES, f"{os.getpid()}")
        _write_to(folder / RUN_LOG)
    # The module looks at the arguments for the id of a run.
    sys.argv[1:] = []
    runpy.run_module("prefect.engine", run_name="__main__")


def _write_to(log: Path) -> None:
    """The worker's pipe would break with it."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


if __name__ == "__main__":
    main()
