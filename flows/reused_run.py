"""A run that reuses everything, shown by a Prefect server without loading Prefect, which takes longer than the run."""

import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import httpx
from pydantic import JsonValue

from flows.prefect_pages import flow_run_url
from stages.errors import TemperError
from stages.store.runs import RunOutcome, RunRecord, RunStage
from tasks.state_names import WAITING_APPROVAL, end_name, end_text, task_run_name

ANSWER_SECONDS = 5.0
PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0)
"""Between tries while the server is busy, as it says when its database is locked."""
BUSY = (429, 503)
FLOW = "temper"
STATES: Mapping[RunOutcome, tuple[str, str]] = {
    "succeeded": ("COMPLETED", "Completed"),
    "waiting_approval": ("COMPLETED", WAITING_APPROVAL),
    "failed": ("FAILED", "Failed"),
}


class UnshownRunError(TemperError):
    """The server does not take the run in this way; Prefect's own client may know how to talk to it."""


class ShownRun:
    """One flow run at a server."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        """Begins it.

        Raises:
            UnshownRunError: the server does not take it.
        """
        self._client = client
        flow = self._post("/flows/", {"name": FLOW})
        self._id = self._post("/flow_runs/", {"flow_id": flow, "name": name})
        self._set_state(f"/flow_runs/{self._id}", "RUNNING", "Running", "")
        self.url = flow_run_url(str(client.base_url), self._id)

    def end(self, record: RunRecord) -> None:
        """Show every node and how the run ended. Raises `UnshownRunError`."""
        for node in record.stages:
            self._show(node)
        kind, name = STATES[record.outcome]
        self._set_state(f"/flow_runs/{self._id}", kind, name, record.message)

    def crash(self, message: str) -> None:
        """The run came to no end of its own."""
        with suppress(UnshownRunError):
            self._set_state(f"/flow_runs/{self._id}", "CRASHED", "Crashed", message)

    def _show(self, node: RunStage) -> None:
        task_run = self._post(
            "/task_runs/",
            {
                "flow_run_id": self._id,
                "name": task_run_name(node.id, node.key),
                "task_key": node.id,
                "dynamic_key": node.id,
            },
        )
        self._set_state(f"/task_runs/{task_run}", "RUNNING", "Running", "")
        kind = "FAILED" if node.outcome == "failed" else "COMPLETED"
        self._set_state(f"/task_runs/{task_run}", kind, end_name(node), end_text(node))

    def _set_state(self, path: str, kind: str, name: str, message: str) -> None:
        state: dict[str, JsonValue] = {"type": kind, "name": name, "message": message}
        self._answer(f"{path}/set_state", {"state": state, "force": True})

    def _post(self, path: str, body: Mapping[str, JsonValue]) -> str:
        """Make an object; returns its id."""
        return str(self._answer(path, body).json()["id"])

    def _answer(self, path: str, body: Mapping[str, JsonValue]) -> httpx.Response:
        try:
            answer = self._client.post(path, json=dict(body))
            for pause in PAUSES_SECONDS:
                if answer.status_code not in BUSY:
                    break
                time.sleep(pause)
                answer = self._client.post(path, json=dict(body))
            return answer.raise_for_status()
        except httpx.HTTPError as error:
            where = self._client.base_url
            raise UnshownRunError(f"the Prefect server at {where} did not take all of the run: {error}") from error


@contextmanager
def shown_run(address: str, name: str) -> Generator[ShownRun | None]:
    """The run at the server whose API is at `address`; None if the server does not take it."""
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get("PREFECT_API_KEY")) else {}
    user, _, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    with httpx.Client(
        base_url=address, headers=headers, auth=(user, password) if user else None, timeout=ANSWER_SECONDS
    ) as client:
        try:
            run = ShownRun(client, name)
        except UnshownRunError:
            run = None
        try:
            yield run
        except BaseException as error:
            if run is not None:
                run.crash(str(error))
            raise
