"""All that `temper up` starts and stops: server, work pool, rule about zombies, worker."""

import os
import socket
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.scheduler.engine_process import ENGINES, RUN_LOG
from flows.scheduler.engines import ask_to_stop, running
from flows.scheduler.leash import Leash
from flows.scheduler.worker import WORKER_LOG, OwnWorker
from flows.server import CLIENT, OwnServer, ServerStartError, answers, without_prefect
from flows.server_home import claim_home
from stages.errors import UserError

HOME_SECONDS = 10.0
POLL_SECONDS = 0.5
RESTART_SECONDS = 5.0
USUAL_PORT = 4200
SERVER = {
    # How soon a task sees that a slot of its pool is free; Prefect's default makes it wait for up to 30 s.
    "PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
}


@dataclass(frozen=True)
class UpSettings:
    """What one `temper up` is asked for."""

    folder: Path
    """Database, logs."""
    port: int | None = None
    """None takes the usual one if it is free; 0 any free one."""
    pool: str = "temper"
    """The work pool that is made, and whose runs the worker fetches."""
    with_worker: bool = True
    python: Path = Path(sys.executable)
    """Of the runs: a file named `python`."""


class RunningUp:
    """A server with a pool and a worker, all of which end with this process; made by `start_up`."""

    def __init__(self, settings: UpSettings, address: str, server: OwnServer | None, leash: Leash) -> None:
        self.address = address
        self._settings = settings
        self._server = server
        self._leash = leash
        self._worker: OwnWorker | None = None
        self._worker_started = 0.0

    def start_worker(self) -> None:
        """Raises `ServerStartError` if it does not start."""
        environment = dict(os.environ) if self._server is None else without_prefect()
        environment["PREFECT_API_URL"] = self.address
        self._worker_started = time.monotonic()
        folder, python = self._settings.folder, self._settings.python
        self._worker = OwnWorker(self._settings.pool, folder, self._leash.path, python, environment)

    def watch(self, say: Callable[[str], None]) -> None:
        """Look after it once: a worker that died is started again.

        Raises:
            ServerStartError: the server died.
        """
        if self._server is not None and self._server.has_ended:
            raise ServerStartError(f"the Prefect server ended; its log is {self._settings.folder / 'server.log'}")
        worker = self._worker
        if worker is None or not worker.has_ended or time.monotonic() - self._worker_started < RESTART_SECONDS:
            return
        say("the worker ended and is started again; its runs go on")
        worker.kill()
        self.start_worker()

    def runs(self) -> list[int]:
        """The processes of its runs."""
        return running(self._settings.folder / ENGINES)

    def stop(self, say: Callable[[str], None]) -> None:
        """Have the runs save what they have and hand themselves back, then end everything."""
        if self._worker is not None:
            # First, for it would start again what is handed back.
            self._worker.kill()
        asked: set[int] = set()
        while runs := self.runs():
            if not asked:
                say(f"waiting for {len(runs)} run(s) to save their progress; Ctrl-C again ends them at once")
            # One that was about to start is asked as soon as it is there.
            ask_to_stop([run for run in runs if run not in asked])
            asked.update(runs)
            time.sleep(POLL_SECONDS)

    def end(self) -> None:
        """End everything at once; runs lose what they had not saved."""
        if self._worker is not None:
            self._worker.kill()
        self._leash.release()
        if self._server is not None:
            self._server.stop()


@contextmanager
def start_up(settings: UpSettings) -> Generator[RunningUp]:
    """Everything up, at the server that `PREFECT_API_URL` names or at one started here; all ended afterwards.

    Raises:
        ServerStartError: server or worker does not start, or the server that is named does not answer.
        HomeTakenError: another server uses the folder.
        UserError: the port is taken.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given and not answers(given):
        raise ServerStartError(f"no Prefect server answers at {given}, which PREFECT_API_URL names")
    port, folder = _free_port(settings.port), settings.folder
    home = claim_home(folder, HOME_SECONDS)
    for log in (RUN_LOG, WORKER_LOG):
        (folder / log).write_bytes(b"")
    leash = Leash(folder / f"leash-{os.getpid()}")
    server = None if given else OwnServer(home, port, SERVER)
    address = given or ("" if server is None else server.address)
    up = RunningUp(settings, address, server, leash)
    try:
        with _environment({**CLIENT, "PREFECT_API_URL": address, "PREFECT_HOME": str(folder / "client")}):
            if server is not None:
                server.wait_until_ready()
            _prepare(address, settings.pool, is_own=server is not None)
        if settings.with_worker:
            up.start_worker()
        yield up
    finally:
        up.end()


def _prepare(address: str, pool: str, is_own: bool) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.scheduler.pool import ensure_pool, ensure_zombie_rule, hand_back_pending

    with temporary_settings({PREFECT_API_URL: address}), get_client(sync_client=True) as client:
        ensure_pool(client, pool)
        ensure_zombie_rule(client)
        if is_own:
            # All that ran at this server ended with the `temper up` before.
            hand_back_pending(client, pool)


def _free_port(wanted: int | None) -> int:
    port = USUAL_PORT if wanted is None else wanted
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        if wanted is None:
            return 0
        problem = os.strerror(error.errno or 0)
        raise UserError(f"--port {port}: {problem}; choose another one, or leave it out") from error
    return port


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
