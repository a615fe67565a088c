"""What a run shows in Prefect beside its states, written by a thread of its own: no stage waits for a slow server."""

import contextvars
import json
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.exceptions import PrefectHTTPStatusError

UPDATE_SECONDS = 15.0
POLL_SECONDS = 0.2
CLOSE_SECONDS = 5.0
NO_KEY = re.compile("[^a-z0-9]+")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """Content under a key; the same key again replaces it.

    Attributes:
        key: lowercase letters, digits and dashes, as `artifact_key` makes it.
        kind: how the web interface shows it.
        data: markdown, the rows of a table as JSON, or a percentage.
        description: markdown above it.
        task_run: the task run that it is about; none is the flow run.
    """

    key: str
    kind: Literal["markdown", "table", "progress"]
    data: str | float
    description: str = ""
    task_run: UUID | None = None


def artifact_key(*parts: str) -> str:
    """A key from names that may have other signs."""
    return NO_KEY.sub("-", "-".join(parts).lower()).strip("-")


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """The data of a table."""
    return json.dumps([dict(row) for row in rows])


@dataclass
class _Slot:
    artifact: Artifact
    changed: bool = True
    written_at: float = field(default=float("-inf"))
    id: UUID | None = None


class Artifacts:
    """The artifacts of one flow run: each is created once, and replaced at most every `UPDATE_SECONDS`.

    A server that does not answer costs the run nothing but what it would have shown.
    """

    def __init__(self, flow_run: UUID) -> None:
        self._flow_run = flow_run
        self._slots: dict[str, _Slot] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        # The settings of the server are in the context of the flow.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._write_until_closed,), daemon=True)
        self._thread.start()

    def put(self, artifact: Artifact) -> None:
        """Show it soon; returns at once."""
        with self._lock:
            slot = self._slots.get(artifact.key)
            if slot is None:
                self._slots[artifact.key] = _Slot(artifact)
            elif slot.artifact != artifact:
                slot.artifact, slot.changed = artifact, True

    def close(self) -> None:
        """Write what is left, for at most `CLOSE_SECONDS`."""
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)

    def _write_until_closed(self) -> None:
        with get_client(sync_client=True) as client:
            closing = False
            while not closing:
                closing = self._closing.wait(POLL_SECONDS)
                for slot in self._due(closing):
                    self._write(client, slot)

    def _due(self, all_of_them: bool) -> list[_Slot]:
        now = time.monotonic()
        with self._lock:
            changed = [slot for slot in self._slots.values() if slot.changed]
        return [slot for slot in changed if all_of_them or now - slot.written_at >= UPDATE_SECONDS]

    def _write(self, client: SyncPrefectClient, slot: _Slot) -> None:
        with self._lock:
            artifact, slot.changed, slot.written_at = slot.artifact, False, time.monotonic()
        try:
            if slot.id is not None:
                update = ArtifactUpdate(data=artifact.data, description=artifact.description)
                client.update_artifact(slot.id, update)
                return
            create = ArtifactCreate(
                key=artifact.key,
                type=artifact.kind,
                data=artifact.data,
                description=artifact.description,
                flow_run_id=self._flow_run,
                task_run_id=artifact.task_run,
            )
            slot.id = client.create_artifact(create).id
        except (httpx.HTTPError, PrefectHTTPStatusError) as error:
            log.warning("artifact %s is not shown: %s", artifact.key, error)
