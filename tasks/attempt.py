"""One attempt at a stage: under a lease, in a child process, to a manifest."""

import functools
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from stages.catalog import STAGES
from stages.contract import ProgressPoint, StageRequest, StageResult
from stages.errors import LeaseLostError
from stages.source_digest import source_digest, source_files
from stages.store.attempts import AttemptRecord, Outcome, write_attempt
from stages.store.lease import Lease, LeaseKeeper
from stages.store.manifest import Adopted, Manifest, commit_manifest
from stages.store.progress import committed_points
from stages.store.provenance import Provenance, collect_provenance
from stages.store.segments import SegmentWriter
from tasks.causes import Cause
from tasks.child_log import ChildLog
from tasks.device_lock import acquire_devices
from tasks.launchers.launcher import Child, Launch
from tasks.launchers.start import start
from tasks.observer import StageObserver
from tasks.scratch import Scratch
from tasks.stage_work import StageDone, StageFailedError, StageWork
from tasks.supervise import BeatWatch, Deadlines, Ending, supervise

OUTCOMES: dict[Cause, Outcome] = {"preempted": "preempted", "stopped": "preempted", "fenced": "fenced"}


class Attempt:
    """An attempt that holds `lease`; `run` ends with the lease released."""

    def __init__(self, work: StageWork, lease: Lease, observer: StageObserver) -> None:
        self._work = work
        self._lease = lease
        self._observer = observer
        self._sources: Mapping[str, str] = {}
        self._lost = threading.Event()
        self._started = time.monotonic()
        self._record = AttemptRecord(
            attempt=lease.attempt, holder=lease.record.holder, started=datetime.now(UTC).isoformat()
        )

    def run(self) -> StageDone:
        """Do the work.

        Raises:
            StageFailedError: with the cause; what was saved stays for the next attempt.
            StorageError: the store failed.
        """
        keeper = LeaseKeeper(self._lease, on_lost=self._on_lost)
        try:
            write_attempt(self._work.store, self._work.paths, self._record)
            return self._run_and_commit()
        except StageFailedError as error:
            self._write_outcome(OUTCOMES.get(error.cause, "failed"), error.cause, error.message)
            raise
        except LeaseLostError as error:
            self._write_outcome("fenced", "fenced", str(error))
            raise StageFailedError("fenced", str(error)) from error
        finally:
            keeper.stop()
            self._release()

    def _on_lost(self, reason: str) -> None:
        self._observer.note(f"lease lost: {reason}")
        self._lost.set()

    def _release(self) -> None:
        try:
            self._lease.release()
        except LeaseLostError:
            return

    def _write_outcome(self, outcome: Outcome, cause: str, message: str, result: StageResult | None = None) -> None:
        steps = {"first_step": result.first_step, "last_step": result.last_step} if result is not None else {}
        record = self._record.model_copy(update={"outcome": outcome, "cause": cause, "message": message, **steps})
        write_attempt(self._work.store, self._work.paths, record)

    def _run_and_commit(self) -> StageDone:
        resume = committed_points(self._work.store, self._work.paths)
        ending = self._run_child(resume)
        if ending.cause is not None or ending.result is None:
            cause = ending.cause or "bug"
            corrupt = ending.result.corrupt if ending.result is not None else None
            raise StageFailedError(cause, ending.message, cause in self._work.node.retry.on, corrupt)
        return self._commit(ending.result, bool(resume))

    def _run_child(self, resume: list[ProgressPoint]) -> Ending:
        work, node = self._work, self._work.node
        segments = SegmentWriter(work.store, work.paths.attempt(self._lease.attempt).log)
        log = ChildLog(segments, self._observer.log)
        scratch = Scratch(work.cache / "scratch", self._lease.attempt)
        inherited = [scratch.descriptor]
        devices = None
        try:
            if not node.resources.share:
                devices = acquire_devices(node.resources.accelerator, work.locks, self._give_up, self._show_wait)
                if devices is None:
                    return self._given_up()
                inherited.append(devices.descriptor)
            self._started = time.monotonic()
            self._sources = source_files(node.kind)
            self._observer.running(f"resuming after step {resume[0].step}" if resume else "")
            beats = BeatWatch(self._observer.beat)
            launch = Launch(
                request=self._request(resume, str(scratch.path)),
                python=node.resources.python,
                accelerator=node.resources.accelerator,
                on_line=log,
                on_beat=beats,
                inherited=tuple(inherited),
                num_processes=node.resources.num_processes,
            )
            deadlines = Deadlines(node.timeout.total, node.timeout.stall, node.timeout.grace)
            ending = supervise(_launch(launch), beats, deadlines, work.stop, self._lost)
            return ending if ending.result is not None or ending.cause is None else _with_tail(ending, log.tail())
        finally:
            if devices is not None:
                devices.release()
            scratch.remove()
            log.close()

    def _give_up(self) -> bool:
        return self._work.stop.requested or self._lost.is_set()

    def _given_up(self) -> Ending:
        if self._lost.is_set():
            return Ending("fenced", "another attempt took the lease", None)
        return Ending("stopped", self._work.stop.reason, None)

    def _show_wait(self) -> None:
        self._observer.waiting(f"waiting for the {self._work.node.resources.accelerator}")

    def _request(self, resume: list[ProgressPoint], scratch: str) -> StageRequest:
        work = self._work
        return StageRequest(
            stage_id=work.node.id,
            kind=work.node.kind,
            version=STAGES[work.node.kind].version,
            key=work.key,
            config=work.node.config.model_dump_json(),
            inputs=dict(work.inputs),
            sources=work.sources,
            store=work.store.uri,
            attempt=self._lease.attempt,
            epoch=self._lease.epoch,
            resume=tuple(resume),
            scratch=scratch,
            cache=str(work.cache),
        )

    def _commit(self, result: StageResult, resumed: bool) -> StageDone:
        seconds = time.monotonic() - self._started
        committed = commit_manifest(self._work.store, self._work.paths, self._manifest(result, seconds), self._lease)
        if isinstance(committed, Adopted):
            self._write_outcome("superseded", "", f"attempt {committed.manifest.attempt} committed first", result)
            return StageDone("Reused", committed.manifest, seconds)
        self._write_outcome("committed", "", "", result)
        state = "Resumed" if resumed else "Committed"
        return StageDone(state, committed.manifest, seconds, result.first_step, result.last_step)

    def _manifest(self, result: StageResult, seconds: float) -> Manifest:
        return Manifest(
            stage=self._work.node.kind,
            key=self._work.key,
            version=STAGES[self._work.node.kind].version,
            attempt=self._lease.attempt,
            epoch=self._lease.epoch,
            outputs=result.outputs,
            numbers=result.numbers,
            inputs=dict(self._work.inputs),
            sources=self._work.sources,
            created=datetime.now(UTC).isoformat(),
            seconds=seconds,
            provenance=_provenance().model_copy(
                update={"source_files": dict(self._sources), "source_digest": source_digest(self._sources)}
            ),
        )


@functools.cache
def _provenance() -> Provenance:
    return collect_provenance()


def _launch(launch: Launch) -> Child:
    try:
        return start(launch)
    except OSError as error:
        raise StageFailedError("user_error", f"cannot start {launch.python or 'the interpreter'}: {error}") from error


def _with_tail(ending: Ending, tail: str) -> Ending:
    return Ending(ending.cause, f"{ending.message}\n{tail}" if tail else ending.message, None)
