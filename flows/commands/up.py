"""`temper up`: a Prefect server with its pages, a worker and what they need, until Ctrl-C."""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from rich.console import Console

from flows.prefect_pages import page_of
from flows.scheduler.address import Up, UpRecord
from flows.scheduler.up import RunningUp, UpSettings, start_up
from tasks.report.files import project_state_dir
from tasks.stopping import StopSignal, exit_code_of, stop_on_signals

WATCH_SECONDS = 0.5
MAX_PORT = 2**16 - 1


def add_arguments(parser: ArgumentParser) -> None:
    """Where it listens and keeps its data."""
    parser.add_argument("--port", type=_port, help="of the server; 0 takes a free one (4200 if it is free)")
    parser.add_argument("--work-pool", metavar="POOL", default="temper", help="whose runs go here (%(default)s)")
    parser.add_argument("--no-worker", action="store_true", help="run nothing here: workers elsewhere do")
    parser.add_argument("--home", type=Path, metavar="DIR", help="of database and logs (.temper/up in the project)")


def run(arguments: Namespace) -> int:
    """Stay up until a signal.

    Raises:
        TemperError: it runs already, or does not start.
    """
    state = project_state_dir(Path.cwd() / "pipeline.yaml")
    folder = (arguments.home or state / "up").absolute()
    record = UpRecord(state)
    stop = StopSignal()
    try:
        _say("starting …")
        settings = UpSettings(folder, arguments.port, arguments.work_pool, not arguments.no_worker)
        with stop_on_signals(stop), start_up(settings) as up:
            record.tell(Up(address=up.address, process=os.getpid(), folder=str(folder)))
            _greet(up, settings)
            while not stop.wait(WATCH_SECONDS):
                up.watch(_say)
            up.stop(_say)
    finally:
        record.release()
    return exit_code_of(stop.reason)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > MAX_PORT:
        raise ArgumentTypeError(f"'{text}': expected a port, 0 to {MAX_PORT}")
    return int(text)


def _greet(up: RunningUp, settings: UpSettings) -> None:
    _say(f"up at {page_of(up.address)}, stop with Ctrl-C")
    _say("next, in another terminal of this project: temper deploy FILE")
    if not settings.with_worker:
        _say(f"no worker: runs wait until one fetches them from the work pool `{settings.pool}`")


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
