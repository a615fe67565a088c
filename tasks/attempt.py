"""One attempt at a stage: under a lease, in a child process, to a manifest."""

import functools
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from stages.catalog import STAGES
from stages.contract import StageResult
from stages.errors import LeaseLostError, StorageError
from stages.source_digest import source_digest
from stages.store.attempts import AttemptRecord, Outcome, write_attempt
from stages.store.lease import Lease, LeaseKeeper
from stages.store.manifest import Adopted, Manifest, commit_manifest
from stages.store.moments import now
from stages.store.provenance import Provenance, collect_provenance
from tasks.attempt_start import AttemptStart, find_start
from tasks.causes import Cause
from tasks.child_run import ChildEnd, ChildRun
from tasks.crash_loop import describe_loop, failures_in_place
from tasks.lost_lease import LostLease
from tasks.memory_relief import relief
from tasks.observer import StageObserver
from tasks.stage_devices import stage_devices
from tasks.stage_work import StageDone, StageFailedError, StageWork

OUTCOMES: dict[Cause, Outcome] = {"preempted": "preempted", "stopped": "preempted", "fenced": "fenced"}


class Attempt:
    """An attempt that holds `lease`; `run` ends with the lease released."""

    def __init__(self, work: StageWork, lease: Lease, observer: StageObserver) -> None:
        self._work = work
        self._lease = lease
        self._observer = observer
        self._lost = LostLease()
        self._record = AttemptRecord(
            attempt=lease.attempt,
            holder=lease.record.holder,
            started=now(),
            run_id=work.run_id,
            provenance=_provenance(),
        )

    def run(self) -> StageDone:
        """Do the work.

        Raises:
            StageFailedError: with the cause; what was saved stays for the next attempt.
            StorageError: the store failed.
        """
        keeper = LeaseKeeper(self._lease, on_lost=self._on_lost)
        try:
            return self._run_and_commit()
        except StageFailedError as error:
            self._note_outcome(OUTCOMES.get(error.cause, "failed"), error.cause, error.message)
            raise
        except LeaseLostError as error:
            self._note_outcome("fenced", "fenced", str(error))
            raise StageFailedError("fenced", str(error)) from error
        except StorageError as error:
            self._note_outcome("failed", "storage", str(error))
            raise
        finally:
            keeper.stop()
            self._release()

    def _begin(self) -> AttemptStart:
        """Looks at what was saved; only once the devices are there, for whoever had them may have saved until then."""
        begin = find_start(self._work)
        for note in begin.notes:
            self._observer.note(note)
        resumed_from = begin.points[0] if begin.points else None
        update = {"resumed_from": resumed_from, "left_out": begin.left_out, "lowered": begin.lowered}
        self._record = self._record.model_copy(update=update)
        write_attempt(self._work.store, self._work.paths, self._record)
        return begin

    def _on_lost(self, error: LeaseLostError | StorageError) -> None:
        self._observer.note(f"lease lost: {error}")
        self._lost.set(error)

    def _release(self) -> None:
        try:
            self._lease.release()
        except LeaseLostError:
            return
        except StorageError as error:
            self._observer.note(f"the lease is held until it ends by itself: {error}")

    def _note_outcome(self, outcome: Outcome, cause: str, message: str) -> None:
        """As `_write_outcome`, where the attempt is over anyhow: a store that fails too must not hide the reason."""
        try:
            self._write_outcome(outcome, cause, message)
        except StorageError as error:
            self._observer.note(f"the end of the attempt was not recorded: {error}")

    def _write_outcome(self, outcome: Outcome, cause: str, message: str) -> None:
        update = {"outcome": outcome, "cause": cause, "message": message, "ended": now()}
        self._record = self._record.model_copy(update=update)
        write_attempt(self._work.store, self._work.paths, self._record)

    def _run_and_commit(self) -> StageDone:
        with stage_devices(self._work, self._observer, self._lost) as devices:
            begin = self._begin()
            end = ChildRun(self._work, self._lease, begin, devices, self._observer, self._lost).run()
        ending, result = end.ending, end.ending.result
        reached = [point.step for point in begin.points[:1]]
        reached += [step for step in (end.last_step, result.last_step if result else None) if step is not None]
        steps = {"first_step": result.first_step if result else None, "last_step": max(reached, default=None)}
        self._record = self._record.model_copy(update=steps)
        if ending.cause is not None or result is None:
            raise self._failure(ending.cause or "bug", end, begin)
        return self._commit(result, end, bool(begin.points))

    def _failure(self, cause: Cause, end: ChildEnd, begin: AttemptStart) -> StageFailedError:
        """The error, with whether and how it may be tried again."""
        retriable, hints = cause in self._work.node.retry.on, list[str]()
        if cause == "oom" and retriable and self._work.node.retry.on_oom:
            lower = relief(self._work.node.config, self._work.node.retry.on_oom, begin.lowered)
            retriable = lower is not None
            stuck = f"{', '.join(self._work.node.retry.on_oom)} cannot be lowered below 1: it needs more memory"
            hints.append(f"next attempt with {lower}" if lower else stuck)
        record = self._record.model_copy(update={"outcome": "failed", "cause": cause, "ended": now()})
        loop = describe_loop(failures_in_place([record, *begin.history], datetime.now(UTC)))
        if loop is not None:
            retriable = False
            hints.append(loop)
        corrupt = end.ending.result.corrupt if end.ending.result is not None else None
        return StageFailedError(cause, "\n".join([end.ending.message, *hints]), retriable, corrupt)

    def _commit(self, result: StageResult, end: ChildEnd, resumed: bool) -> StageDone:
        seconds = time.monotonic() - end.started
        manifest = self._manifest(result, seconds, end.sources)
        committed = commit_manifest(self._work.store, self._work.paths, manifest, self._lease)
        if isinstance(committed, Adopted):
            self._note_outcome("superseded", "", f"attempt {committed.manifest.attempt} committed first")
            return StageDone("Reused", committed.manifest, seconds)
        self._note_outcome("committed", "", "")
        state = "Resumed" if resumed else "Committed"
        return StageDone(state, committed.manifest, seconds, result.first_step, result.last_step)

    def _manifest(self, result: StageResult, seconds: float, sources: Mapping[str, str]) -> Manifest:
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
            created=now(),
            seconds=seconds,
            num_steps=_num_steps(result),
            provenance=_provenance().model_copy(
                update={"source_files": dict(sources), "source_digest": source_digest(sources)}
            ),
        )


def _num_steps(result: StageResult) -> int | None:
    if result.first_step is None or result.last_step is None:
        return None
    return result.last_step - result.first_step + 1


@functools.cache
def _provenance() -> Provenance:
    return collect_provenance()
