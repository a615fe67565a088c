"""A Prefect server for one run, started where no `PREFECT_API_URL` names another one."""

import fcntl
import importlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stages.errors import TemperError
from stages.store.io_errors import io_errors

START_SECONDS = 90.0
STOP_SECONDS = 5.0
DRAIN_SECONDS = 5.0
POLL_SECONDS = 0.1
ANSWER_SECONDS = 5.0
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
}
CLIENT = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}


class ServerStartError(TemperError):
    """There is no server; the message says where one was looked for, or names its log."""


class OwnServer:
    """A server process in its own session, under the life line of this process.

    Its home is a numbered folder below `home`, the first that no other running server has, so that two runs at once
    never write to one database.
    """

    def __init__(self, home: Path) -> None:
        self._folder, lock = _claim_folder(home)
        self._log = self._folder / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.server_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**_without_prefect(), **QUIET, "PREFECT_HOME": str(self._folder)},
                pass_fds=(lock,),
                start_new_session=True,
            )
        os.close(lock)
        self._deadline = time.monotonic() + START_SECONDS
        assert self._process.stdout is not None
        self.address = f"http://127.0.0.1:{self._process.stdout.readline().decode().strip()}/api"

    def wait_until_ready(self) -> None:
        """Return once the server answers.

        Raises:
            ServerStartError: it ended, or did not answer within 90 s.
        """
        while not _answers(self.address):
            if self._process.poll() is not None:
                raise ServerStartError(f"the Prefect server ended while it started; its log is {self._log}")
            if time.monotonic() > self._deadline:
                raise ServerStartError(f"the Prefect server did not answer in {START_SECONDS:g} s; see {self._log}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Have Prefect send what it holds back, then end the server and all that it started."""
        if "prefect.events" in sys.modules and self._process.poll() is None:
            _drain()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def prefect_server(home: Path) -> Generator[str]:
    """The address of the server to use: that of `PREFECT_API_URL`, or of one started here and stopped at the end.

    The environment is set up for it; import Prefect only inside.

    Raises:
        ServerStartError: it does not answer.
        StorageError: `home` cannot be written.
    """
    for name, value in CLIENT.items():
        os.environ.setdefault(name, value)
    given = os.environ.get("PREFECT_API_URL")
    if given:
        if not _answers(given):
            raise ServerStartError(
                f"no Prefect server answers at {given}, which PREFECT_API_URL names: start it, or unset the variable "
                "to have one started for this run"
            )
        yield given
        return
    server = OwnServer(home)
    try:
        os.environ.update({"PREFECT_HOME": str(home), "PREFECT_API_URL": server.address})
        # Loading Prefect takes seconds, as the server's start does: both at once.
        importlib.import_module("prefect.flows")
        server.wait_until_ready()
        yield server.address
    finally:
        os.environ.pop("PREFECT_API_URL", None)
        server.stop()


def _claim_folder(home: Path) -> tuple[Path, int]:
    number = 0
    while True:
        folder = home / str(number)
        with io_errors("write", folder):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            number += 1
        else:
            return folder, descriptor


def _without_prefect() -> dict[str, str]:
    """The environment without the settings of the user's own Prefect, which are for other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def _drain() -> None:
    """What is still held back at exit is tried for minutes when the server is gone."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()
    EventsWorker.drain_all(timeout=DRAIN_SECONDS)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            return answer.status == 200
    except urllib.error.HTTPError as error:
        # It is there; who may use it is for the client to find out.
        return error.code in (401, 403, 404)
    except (OSError, ValueError):
        return False
