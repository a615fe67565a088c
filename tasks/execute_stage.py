"""A stage from its lease to a committed result, however many preemptions that takes."""

import time

from pipelines.spec.nodes import OnConflict
from stages.contract import CorruptInput
from stages.store.holder import this_holder
from stages.store.layout import StagePaths
from stages.store.lease import HeldBy, Lease, Observation, acquire
from stages.store.manifest import Manifest, claim_manifest, quarantine, write_spec
from tasks.attempt import Attempt
from tasks.observer import StageObserver
from tasks.stage_work import StageDone, StageFailedError, StageWork

WAIT_SECONDS = 1.0


def execute_stage(work: StageWork, observer: StageObserver) -> StageDone:
    """Run the stage, or take the result of whoever else runs it.

    Raises:
        StageFailedError: with the cause. A corrupt input's producer is quarantined by then.
        StorageError: the store failed.
    """
    started = time.monotonic()
    write_spec(work.store, work.paths, work.payload)
    preemptions_left = work.node.retry.preempted_max
    policy: OnConflict = "takeover" if work.takeover else work.node.on_conflict
    while True:
        taken = _wait_for_lease(work, policy, observer)
        if isinstance(taken, Manifest):
            return StageDone("Reused", taken, time.monotonic() - started)
        try:
            return Attempt(work, taken, observer).run()
        except StageFailedError as error:
            if error.corrupt is not None:
                _quarantine_producer(work, error.corrupt, error.message)
            if error.cause != "preempted" or preemptions_left == 0:
                raise
        preemptions_left -= 1
        # Whoever comes in between came rightly.
        policy = "wait" if policy == "takeover" else policy
        observer.preempted(f"preempted, {preemptions_left} more are allowed; going on from what was saved")


def _wait_for_lease(work: StageWork, policy: OnConflict, observer: StageObserver) -> Lease | Manifest:
    """The lease, or the result if there is one by the time that the lease is free."""
    observation = Observation()
    holder = this_holder(work.run_url)
    waiting = False
    while not work.stop.requested:
        manifest = claim_manifest(work.store, work.paths)
        if manifest is not None:
            return manifest
        taken = acquire(work.store, work.paths, holder, observation)
        if isinstance(taken, HeldBy) and policy == "takeover":
            loser = taken.record.holder.shown
            taken = acquire(work.store, work.paths, holder, observation, takeover=True)
            if isinstance(taken, Lease):
                observer.note(f"taken over from {loser}")
        if isinstance(taken, Lease):
            return _look_again(work, taken)
        if policy == "fail":
            raise StageFailedError("conflict", f"{taken.record.holder.shown} works on it, and on_conflict is fail")
        if not waiting:
            observer.waiting(f"waiting for {taken.record.holder.shown}")
            waiting = True
        work.stop.wait(WAIT_SECONDS)
    raise StageFailedError("stopped", work.stop.reason)


def _look_again(work: StageWork, lease: Lease) -> Lease | Manifest:
    """The holder before us may have committed between our look at the manifest and its release."""
    manifest = claim_manifest(work.store, work.paths)
    if manifest is None:
        return lease
    lease.release()
    return manifest


def _quarantine_producer(work: StageWork, corrupt: CorruptInput, reason: str) -> None:
    paths = StagePaths(corrupt.stage, corrupt.key)
    read = [i for i in work.inputs.values() if i.kind == "stored" and (i.stage, i.key) == (paths.kind, paths.key)]
    attempt = read[0].folder.removeprefix(f"{paths.attempts}/").partition("/")[0] if read else None
    quarantine(work.store, paths, reason, attempt)
