"""What a running stage may use, over the store and the local disk."""

import logging
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.contract import (
    Beat,
    ExternalInput,
    ProgressArea,
    ProgressPoint,
    SourceRef,
    StageInput,
    StageRequest,
    StoredBase,
    StoredInput,
)
from stages.engine.metrics.following import NOBODY, Followers
from stages.errors import UserError
from stages.sources.resolve import open_source
from stages.store.conditional import ConditionalStore
from stages.store.inputs import fetch_input, find_base
from stages.store.layout import StagePaths
from stages.store.progress import StoreProgress
from stages.store.segments import MetricsWriter

logger = logging.getLogger(__name__)

LOG_SECONDS = 10.0
OUTPUTS_FOLDER = "out"
SCRATCH_FOLDER = "scratch"
"""Within the attempt's own folder: what becomes its outputs, and anything temporary."""


class RunContext:
    """The context of one attempt. `stop` is set from outside when the stage shall save and stop.

    `first_step` and `last_step` are those of the metrics rows, None before there is one.
    """

    def __init__(
        self, request: StageRequest, store: ConditionalStore, stop: threading.Event, followers: Followers = NOBODY
    ) -> None:
        """`followers` are shown the metrics."""
        self._request = request
        self._store = store
        self._stop = stop
        self._leads = request.leads
        self._followers = followers
        paths = StagePaths(request.kind, request.key)
        self._attempt = paths.attempt(request.attempt)
        self._metrics = MetricsWriter(store, self._attempt, request.epoch)
        progress = StoreProgress(
            store, paths, request.attempt, request.resume, before_commit=self._metrics.flush, saving=request.saving
        )
        self._progress = progress if self._leads else FollowedProgress(progress)
        self.first_step: int | None = None
        self.last_step: int | None = None
        self._beats = BeatWriter(request.beat_fd)

    @property
    def scratch(self) -> Path:
        """A local folder for anything temporary."""
        folder = Path(self._request.scratch) / SCRATCH_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def progress(self) -> ProgressArea:
        """Resumable steps."""
        return self._progress

    @property
    def last_numbers(self) -> dict[str, float]:
        """The numbers of the last beat."""
        return self._beats.numbers

    def has_input(self, name: str) -> bool:
        """Whether an optional input was given."""
        return name in self._request.inputs

    def input(self, name: str) -> StageInput:
        """The input as requested."""
        return self._request.inputs[name]

    def input_dir(self, name: str) -> Path:
        """Local folder of a stored input, every file checked; raises `CorruptArtifactError`."""
        stored = self._request.inputs[name]
        if isinstance(stored, ExternalInput):
            raise UserError(f"input '{name}' is the source {stored.source.uri}, which has no stored folder")
        return self._fetch(stored)

    def base_dir(self, base: StoredBase) -> Path:
        """Local folder of a stored base, every file checked; raises `UserError` and `CorruptArtifactError`."""
        return self._fetch(find_base(self._store, base))

    def _fetch(self, stored: StoredInput) -> Path:
        # By its attempt too: of a result that was made again no file of the earlier one may be among the new ones.
        return fetch_input(self._store, stored, Path(self._request.cache) / "inputs" / stored.folder)

    def source(self, uri: str) -> SourceRef:
        """The source with the digest that the request gives; raises `UserError` where it gives none."""
        for source in self._request.sources:
            if source.uri == uri:
                return source
        raise UserError(f"the request has no digest for the source {uri} that the settings name")

    def source_path(self, source: SourceRef) -> Path:
        """Local file or folder of an external source whose content matches its digest."""
        return open_source(source, Path(self._request.cache))

    def cache_dir(self, name: str) -> Path:
        """A local folder that all attempts share, for what can be computed again; files in it are replaced whole."""
        folder = Path(self._request.cache) / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def output_dir(self, name: str) -> Path:
        """Local folder whose files become the output when the stage returns."""
        folder = Path(self._request.scratch) / OUTPUTS_FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def beat(self, step: int, total: int, numbers: Mapping[str, float]) -> None:
        """Report that `step` of `total` steps are done."""
        self._beats.write(Beat(step=step, total=total, numbers=_finite(numbers)))

    def log_metrics(self, step: int, numbers: Mapping[str, float]) -> None:
        """Append one row of `group/name` numbers; raises `UserError` where one is not finite.

        Only the process that leads keeps it.
        """
        if self._leads:
            self._metrics.append(step, numbers)
            self._followers.add(step, numbers)
        self.first_step = step if self.first_step is None else self.first_step
        self.last_step = step

    def keep(self, name: str, content: bytes) -> str:
        """Store a file beside the attempt's logs, for whoever looks for a fault, and say where it is.

        Only the process that leads keeps it. Raises `StorageError`.
        """
        path = f"{self._attempt.kept_folder}/{name}"
        if self._leads:
            self._store.create(path, content)
        return self._store.location(path)

    def flush_metrics(self) -> None:
        """Store the rows so far. Raises `StorageError`."""
        self._metrics.flush()

    def should_stop(self) -> bool:
        """Whether the stage was asked to stop."""
        return self._stop.is_set()


class FollowedProgress:
    """The progress area of a process that writes its part of each step and leaves the commit to the one that leads."""

    def __init__(self, area: ProgressArea) -> None:
        self._area = area

    def candidates(self) -> Sequence[ProgressPoint]:
        return self._area.candidates()

    def uri(self, point: ProgressPoint) -> str:
        return self._area.uri(point)

    def new_uri(self, step: int) -> str:
        return self._area.new_uri(step)

    def save_due(self) -> bool:
        return self._area.save_due()

    def commit(self, step: int) -> None:
        """Nothing: the record is the leader's."""


class BeatWriter:
    """Beats as JSON lines on a pipe, or now and then in the log where there is none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._logged_at = -math.inf
        self.numbers: dict[str, float] = {}
        if descriptor is not None:
            os.set_blocking(descriptor, False)

    def write(self, beat: Beat) -> None:
        """Send one beat; one that finds the pipe full or closed is dropped, for a later one says more."""
        self.numbers = beat.numbers
        if self._descriptor is not None:
            try:
                os.write(self._descriptor, beat.model_dump_json().encode() + b"\n")
            except (BlockingIOError, BrokenPipeError):
                return
        elif time.monotonic() - self._logged_at > LOG_SECONDS or beat.step >= beat.total:
            self._logged_at = time.monotonic()
            numbers = " ".join(f"{name} {value:.4g}" for name, value in beat.numbers.items())
            logger.info("step %d of %d %s", beat.step, beat.total, numbers)


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """What can be shown: JSON has no word for the others, and a run that diverged fails by its metrics."""
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
