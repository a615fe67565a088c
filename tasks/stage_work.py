"""One stage to run, and how that may turn out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.spec.nodes import StageNode
from stages.contract import CorruptInput, SourceRef, StageInput
from stages.errors import TemperError
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest
from stages.trackers import Tracking
from tasks.causes import Cause
from tasks.display import Display
from tasks.stopping import StopSignal


@dataclass(frozen=True)
class StageWork:
    """All that `run_stage` needs.

    Attributes:
        node: the stage as the pipeline says.
        key: its identity, and `payload` the bytes that it is the hash of.
        inputs: where its inputs are.
        sources: what its settings name outside the store.
        store: where everything is read and committed.
        run_url: where to watch this run, if anywhere.
        cache: folder shared between attempts.
        locks: folder of the device locks.
        display: shows its progress.
        stop: ends it early.
        run_id: the run that this is done for; a run that its scheduler starts again keeps its id.
        tracking: what shows its metrics beside the store, if anything.
        takeover: take the stage from another run that works on it, whatever `on_conflict` says.
    """

    node: StageNode
    key: str
    payload: bytes
    inputs: Mapping[str, StageInput]
    sources: tuple[SourceRef, ...]
    store: ConditionalStore
    run_url: str | None
    cache: Path
    locks: Path
    display: Display
    stop: StopSignal
    run_id: str
    tracking: Tracking | None = None
    takeover: bool = False

    @property
    def paths(self) -> StagePaths:
        """Where the stage is in the store."""
        return StagePaths(self.node.kind, self.key)


@dataclass(frozen=True)
class StageDone:
    """A committed stage: by whom, and what this run executed of it."""

    state: Literal["Committed", "Resumed", "Reused"]
    manifest: Manifest
    seconds: float
    first_step: int | None = None
    last_step: int | None = None


class StageFailedError(TemperError):
    """An attempt that ended without a result."""

    def __init__(
        self, cause: Cause, message: str, retriable: bool = False, corrupt: CorruptInput | None = None
    ) -> None:
        super().__init__(f"{cause}: {message}")
        self.cause: Cause = cause
        self.message = message
        self.retriable = retriable
        self.corrupt = corrupt
