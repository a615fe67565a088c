"""A Prefect server for one run, started where no `PREFECT_API_URL` names another one."""

import importlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.server_home import ServerHome, claim_numbered_home
from stages.errors import TemperError

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
NO_SETTINGS: Mapping[str, str] = {}
CLIENT = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_CLI_PROMPT": "false",
}


class ServerStartError(TemperError):
    """There is no server; the message says where one was looked for, or names its log."""


class OwnServer:
    """A server process in its own session, under the life line of this process.

    `port` 0 takes a free one; `settings` are further ones of Prefect's, by their names in the environment.
    """

    def __init__(self, home: ServerHome, port: int = 0, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        self._log = home.folder / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.server_process", str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**without_prefect(), **QUIET, **settings, "PREFECT_HOME": str(home.folder)},
                pass_fds=(home.lock,),
                start_new_session=True,
            )
        os.close(home.lock)
        self._deadline = time.monotonic() + START_SECONDS
        assert self._process.stdout is not None
        self.address = f"http://127.0.0.1:{self._process.stdout.readline().decode().strip()}/api"

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def wait_until_ready(self) -> None:
        """Return once the server answers.

        Raises:
            ServerStartError: it ended, or did not answer within 90 s.
        """
        while not answers(self.address):
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
        if not answers(given):
            raise ServerStartError(
                f"no Prefect server answers at {given}, which PREFECT_API_URL names: start it, or unset the variable "
                "to have one started for this run"
            )
        yield given
        return
    server = OwnServer(claim_numbered_home(home))
    try:
        os.environ.update({"PREFECT_HOME": str(home), "PREFECT_API_URL": server.address})
        # Loading Prefect takes seconds, as the server's start does: both at once.
        importlib.import_module("prefect.flows")
        server.wait_until_ready()
        yield server.address
    finally:
        os.environ.pop("PREFECT_API_URL", None)
        server.stop()


def without_prefect() -> dict[str, str]:
    """The environment without the settings of the user's own Prefect, which are for other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def _drain() -> None:
    """What is still held back at exit is tried for minutes when the server is gone."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()
    EventsWorker.drain_all(timeout=DRAIN_SECONDS)


def answers(address: str) -> bool:
    """Whether a Prefect server is there."""
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            return answer.status == 200
    except urllib.error.HTTPError as error:
        # It is there; who may use it is for the client to find out.
        return error.code in (401, 403, 404)
    except (OSError, ValueError):
        return False
