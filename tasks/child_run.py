"""The process of one attempt: its request, and how it ended."""

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

from pydantic import ValidationError

from stages.catalog import STAGES
from stages.contract import Saving, StageConfigBase, StageRequest
from stages.secrets import is_secret
from stages.source_digest import source_files
from stages.store.io_errors import is_full_disk
from stages.store.lease import Lease
from stages.store.segments import SegmentWriter
from tasks.attempt_start import AttemptStart
from tasks.child_log import ChildLog
from tasks.device_lock import DeviceLock
from tasks.launchers.launcher import Child, Launch
from tasks.launchers.start import start
from tasks.lost_lease import LostLease
from tasks.memory_relief import with_settings
from tasks.observer import StageObserver
from tasks.scratch import Scratch
from tasks.stage_work import StageFailedError, StageWork
from tasks.supervise import BeatWatch, Deadlines, Ending, supervise


@dataclass(frozen=True)
class ChildEnd:
    """How it ended.

    Attributes:
        ending: the end.
        started: by the monotonic clock.
        sources: the files that made it what it was, with their digests.
        last_step: by its last beat.
    """

    ending: Ending
    started: float
    sources: Mapping[str, str]
    last_step: int | None


class ChildRun:
    """One process from its start to its end."""

    def __init__(
        self,
        work: StageWork,
        lease: Lease,
        begin: AttemptStart,
        devices: DeviceLock,
        observer: StageObserver,
        lost: LostLease,
    ) -> None:
        """`lost` is set when the lease is."""
        self._work = work
        self._lease = lease
        self._begin = begin
        self._devices = devices
        self._observer = observer
        self._lost = lost

    def run(self) -> ChildEnd:
        """Raises `StageFailedError` where the process cannot be started."""
        with ExitStack() as stack:
            segments = SegmentWriter(self._work.store, self._work.paths.attempt(self._lease.attempt).log)
            log = stack.enter_context(closing(ChildLog(segments, self._observer.log)))
            scratch = Scratch(self._work.cache / "scratch", self._lease.attempt)
            stack.callback(scratch.remove)
            points = self._begin.points
            self._observer.running(f"resuming after step {points[0].step}" if points else "")
            sources = source_files(self._work.node.kind)
            started, beats = time.monotonic(), BeatWatch(self._observer.beat)
            child = _start(self._launch(scratch, log, beats))
            limits = self._work.node.timeout
            deadlines = Deadlines(limits.total, limits.stall, limits.grace)
            ending = supervise(child, beats, deadlines, self._work.stop, self._lost)
            if ending.result is None and ending.cause is not None:
                ending = _with_tail(ending, log.tail())
            return ChildEnd(ending, started, sources, beats.last_step)

    def _launch(self, scratch: Scratch, log: ChildLog, beats: BeatWatch) -> Launch:
        resources = self._work.node.resources
        environment = {name: value for name, value in resources.env.items() if not is_secret(value)}
        if self._devices.devices:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self._devices.devices)
        return Launch(
            request=self._request(str(scratch.path)),
            python=resources.python,
            accelerator=resources.accelerator,
            on_line=log,
            on_beat=beats,
            inherited=(scratch.descriptor, *self._devices.descriptors),
            num_processes=resources.num_processes,
            environment=environment,
        )

    def _request(self, scratch: str) -> StageRequest:
        work, node = self._work, self._work.node
        return StageRequest(
            stage_id=node.id,
            kind=node.kind,
            version=STAGES[node.kind].version,
            key=work.key,
            config=_lowered(node.config, self._begin.lowered).model_dump_json(),
            inputs=dict(work.inputs),
            sources=work.sources,
            store=work.store.uri,
            attempt=self._lease.attempt,
            epoch=self._lease.epoch,
            resume=self._begin.points,
            saving=Saving(
                every_seconds=node.resume.every, keep_last=node.resume.keep_last, keep_every=node.resume.keep_every
            ),
            tracking=work.tracking,
            secrets={name: value for name, value in node.resources.env.items() if is_secret(value)},
            scratch=scratch,
            cache=str(work.cache),
        )


def _lowered(config: StageConfigBase, settings: Mapping[str, int]) -> StageConfigBase:
    if not settings:
        return config
    try:
        return with_settings(config, settings)
    except ValidationError as error:
        raise StageFailedError("user_error", f"retry.on_oom made settings that the stage refuses: {error}") from error


def _start(launch: Launch) -> Child:
    try:
        return start(launch)
    except OSError as error:
        if is_full_disk(error):
            message = f"cannot write {launch.request.scratch}: {error.strerror}; free some space"
            raise StageFailedError("storage", message, retriable=False) from error
        raise StageFailedError("user_error", f"cannot start {launch.python or 'the interpreter'}: {error}") from error


def _with_tail(ending: Ending, tail: str) -> Ending:
    return Ending(ending.cause, f"{ending.message}\n{tail}" if tail else ending.message, None)
