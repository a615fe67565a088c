"""Which server to talk to, and a client of it."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.prefect_pages import page_of
from flows.scheduler.address import find_up
from flows.server import CLIENT, START_SECONDS, ServerStartError, answers
from stages.errors import UserError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


@dataclass(frozen=True)
class Server:
    """A Prefect server that is there; `known_from` says how it was found."""

    address: str
    known_from: str

    @property
    def page(self) -> str:
        """Of its web interface."""
        return page_of(self.address)


def find_server(state: Path) -> Server:
    """The server that `PREFECT_API_URL` names, or that of the `temper up` of the project with this state folder.

    Raises:
        ServerStartError: the one that is named does not answer.
        UserError: there is none.
    """
    given = os.environ.get("PREFECT_API_URL")
    if given:
        server = Server(given, "PREFECT_API_URL")
    elif (up := find_up(state, START_SECONDS)) is not None:
        server = Server(up.address, f"the `temper up` with process {up.process}")
    else:
        raise UserError(
            f"no Prefect server: PREFECT_API_URL is not set and no `temper up` runs for the project of {state}; "
            "start one with `temper up` in another terminal"
        )
    if not answers(server.address):
        raise ServerStartError(f"no Prefect server answers at {server.address}, which {server.known_from} names")
    return server


@contextmanager
def connect(address: str) -> Generator["SyncPrefectClient"]:
    """A client of the server; only here is Prefect loaded."""
    for name, value in CLIENT.items():
        os.environ.setdefault(name, value)
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: address}), get_client(sync_client=True) as client:
        yield client
