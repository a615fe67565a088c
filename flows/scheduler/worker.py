"""The worker of a `temper up`: a process that fetches due runs and starts each in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from flows.scheduler.engine_process import LEASH, UP_FOLDER
from flows.scheduler.pool import HEARTBEAT_SECONDS
from flows.server import CLIENT, ServerStartError

WORKER_LOG = "worker.log"
SETTINGS = {
    "DO_NOT_TRACK": "1",
    # Nothing of it reaches a terminal: the logs are files.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",
    "PREFECT_LOGGING_COLORS": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    # A run that is asked to stop, not cancelled, is handed back and goes on at the next chance.
    "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule",
    # Runs start when they are due and not before: one that is early would find the one before it still there.
    "PREFECT_WORKER_PREFETCH_SECONDS": "0",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
}


class OwnWorker:
    """A worker process in its own session, under the life line of this process.

    `python` is the interpreter of the runs, a file named `python`; `environment` is where the server's address and the
    right to use it stand.
    """

    def __init__(self, pool: str, folder: Path, leash: Path, python: Path, environment: Mapping[str, str]) -> None:
        log = folder / WORKER_LOG
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.scheduler.worker_process", pool],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={
                    **environment,
                    **CLIENT,
                    **SETTINGS,
                    "PREFECT_HOME": str(folder / "worker"),
                    "PATH": f"{python.parent}{os.pathsep}{environment.get('PATH', os.defpath)}",
                    UP_FOLDER: str(folder),
                    LEASH: str(leash),
                },
                start_new_session=True,
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise ServerStartError(f"the worker ended while it started; its log is {log}")

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once; the runs that it started go on."""
        if not self.has_ended:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
