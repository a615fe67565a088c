"""A run that is cancelled in Prefect stops, also where no worker is there to send it a signal."""

import contextvars
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError

from tasks.stopping import StopSignal

LOOK_SECONDS = 5.0
CANCELLED = "cancelled in Prefect"

log = logging.getLogger(__name__)


@contextmanager
def stop_on_cancel(stop: StopSignal, flow_run: UUID) -> Generator[None]:
    """Look every few seconds whether the run was cancelled, and request a stop then."""
    ended = threading.Event()
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(_watch, stop, flow_run, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LOOK_SECONDS)


def _watch(stop: StopSignal, flow_run: UUID, ended: threading.Event) -> None:
    with get_client(sync_client=True) as client:
        while not ended.wait(LOOK_SECONDS) and not stop.requested:
            if is_cancelled(client, flow_run):
                stop.request(CANCELLED)


def is_cancelled(client: SyncPrefectClient, flow_run: UUID) -> bool:
    """Whether somebody cancelled it; a server that does not answer has cancelled nothing."""
    try:
        state = client.read_flow_run(flow_run).state
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        log.debug("cannot ask whether the run was cancelled: %s", error)
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())
