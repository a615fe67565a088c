"""One holder at a time for each stage identity: epochs, takeover of a dead holder, renewal.

The lease saves work; it does not guard the result. Private attempt folders and the create-only manifest do that.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from stages.contract import Strict
from stages.errors import LeaseLostError, StorageError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import Holder, is_gone
from stages.store.layout import StagePaths, attempt_name
from stages.store.records import decode, encode

_working: set[str] = set()
"""Attempts of this process that hold a lease and have not given it up."""


class LeaseRecord(Strict):
    """What `lease.json` says; it is never deleted, so that epochs only grow."""

    epoch: int
    attempt: str
    holder: Holder
    state: Literal["held", "committing", "released"]
    beat: int
    """Renewals so far: every renewal makes another generation."""


@dataclass(frozen=True)
class LeaseTiming:
    """How long a holder may be silent, in seconds.

    Raises:
        ValueError: a holder that misses two renewals and waits for one request would lose its lease.
    """

    ttl: float = 120.0
    beat: float = 20.0
    request: float = 30.0

    def __post_init__(self) -> None:
        if self.ttl <= 3 * self.beat + self.request:
            raise ValueError(f"ttl {self.ttl} s must be more than 3 * beat {self.beat} s + request {self.request} s")

    @property
    def surrender(self) -> float:
        """Silence after which the holder itself gives up: a quarter of the TTL is left to end its work."""
        return self.ttl * 0.75


@dataclass
class Observation:
    """What one waiting process saw of a lease; kept between its calls of `acquire`.

    Age is measured on the observer's own monotonic clock since it first saw the generation, so no two clocks are
    ever compared.
    """

    clock: Callable[[], float] = time.monotonic
    generation: str = ""
    since: float = 0.0

    def age(self, generation: str) -> float:
        """Seconds for which the lease has had this generation, as far as this process knows."""
        if generation != self.generation:
            self.generation, self.since = generation, self.clock()
        return self.clock() - self.since


@dataclass(frozen=True)
class HeldBy:
    """Another attempt holds the lease."""

    record: LeaseRecord
    seconds_left: float
    """Until this process may take over, if the holder stays silent."""


@dataclass
class Lease:
    """A held lease. Safe to use from several threads."""

    store: ConditionalStore
    path: str
    record: LeaseRecord
    generation: str
    renewed: float
    """Monotonic time just before the last write that took effect."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def attempt(self) -> str:
        return self.record.attempt

    @property
    def epoch(self) -> int:
        return self.record.epoch

    def renew(self) -> None:
        """Show that the holder lives.

        Raises:
            LeaseLostError: another attempt took the lease.
        """
        with self._lock:
            self._swap(self.record.state)

    def mark_committing(self) -> None:
        """Renew for the last time before the manifest is written; raises `LeaseLostError`."""
        with self._lock:
            self._swap("committing")

    def release(self) -> None:
        """Let the next attempt in; call after renewals have ended. Raises `LeaseLostError`.

        Where the store fails, another attempt of this process still gets in at once.
        """
        _working.discard(self.attempt)
        with self._lock:
            self._swap("released")

    def _swap(self, state: Literal["held", "committing", "released"]) -> None:
        record = self.record.model_copy(update={"state": state, "beat": self.record.beat + 1})
        while True:
            # Taken before the call: a waiting process may see the new generation at any time during it.
            started = time.monotonic()
            try:
                self.generation = self.store.swap(self.path, encode(record), self.generation)
            except PreconditionFailed:
                # Written again also where a write of ours took effect unanswered: others count from that one.
                record = record.model_copy(update={"beat": self._reread().beat + 1})
                continue
            self.record, self.renewed = record, started
            return

    def _reread(self) -> LeaseRecord:
        """After a refused swap: an earlier one of ours took effect although its answer was lost, or we lost."""
        stored = self.store.get(self.path)
        current = None if stored is None else decode(LeaseRecord, stored.data, self.store.location(self.path))
        if stored is None or current is None or current.attempt != self.attempt:
            taken = "it is gone" if current is None else f"attempt {current.attempt} has it"
            raise LeaseLostError(f"attempt {self.attempt} lost {self.store.location(self.path)}: {taken}")
        self.generation = stored.generation
        return current


def acquire(
    store: ConditionalStore,
    paths: StagePaths,
    holder: Holder,
    observation: Observation,
    timing: LeaseTiming | None = None,
    takeover: bool = False,
) -> Lease | HeldBy:
    """Take the lease if it is free, released, its holder's process is gone or given up, or it was silent for the TTL.

    With `takeover` a living holder loses it too, unless it is about to commit: it notices at its next renewal.

    A caller that gets `HeldBy` calls again later with the same `observation`. One that gets the lease looks for a
    manifest once more before it works: the previous holder may have committed in between.
    """
    ttl = (timing or LeaseTiming()).ttl
    unique = uuid.uuid4().hex
    while True:
        started = time.monotonic()
        stored = store.get(paths.lease)
        current = None if stored is None else decode(LeaseRecord, stored.data, store.location(paths.lease))
        if stored is not None and current is not None:
            if current.attempt.endswith(unique):
                # Our write took effect, but its answer was lost.
                return Lease(store, paths.lease, current, stored.generation, started)
            seconds_left = ttl - observation.age(stored.generation)
            kept = current.state == "committing" or (current.state == "held" and not takeover)
            if kept and not _is_over(current, holder) and seconds_left > 0:
                return HeldBy(current, seconds_left)
        epoch = 1 if current is None else current.epoch + 1
        record = LeaseRecord(epoch=epoch, attempt=attempt_name(epoch, unique), holder=holder, state="held", beat=0)
        # Before the write: another thread may see it at once.
        _working.add(record.attempt)
        try:
            if stored is None:
                generation = store.create(paths.lease, encode(record))
            else:
                generation = store.swap(paths.lease, encode(record), stored.generation)
        except PreconditionFailed:
            continue
        except StorageError:
            _working.discard(record.attempt)
            raise
        return Lease(store, paths.lease, record, generation, started)


def _is_over(record: LeaseRecord, observer: Holder) -> bool:
    """Whether the holder certainly does nothing more: its process is gone, or it is this one and has given it up."""
    if is_gone(record.holder, observer):
        return True
    same = record.holder.model_copy(update={"run_url": observer.run_url}) == observer
    return same and observer.pid == os.getpid() and record.attempt not in _working


OnLost = Callable[[LeaseLostError | StorageError], None]


class LeaseKeeper:
    """Renews a lease in a thread until stopped, and tells when it is lost.

    `on_lost` is called once, from another thread, with a `LeaseLostError` when another attempt has the lease, or with a
    `StorageError` when no renewal succeeded for three quarters of the TTL; a request that hangs does not delay it.
    """

    def __init__(self, lease: Lease, on_lost: OnLost, timing: LeaseTiming | None = None) -> None:
        self._lease = lease
        self._on_lost = on_lost
        self._timing = timing or LeaseTiming()
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._lost: LeaseLostError | StorageError | None = None
        self._fault: StorageError | None = None
        self._threads = [
            threading.Thread(target=self._renew, name="lease-renew", daemon=True),
            threading.Thread(target=self._watch, name="lease-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End renewals and wait for the one in flight, so that the lease may be released."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _renew(self) -> None:
        pause = self._timing.beat
        while not self._stopped.wait(pause):
            try:
                self._lease.renew()
                pause, self._fault = self._timing.beat, None
            except LeaseLostError as error:
                with self._changed:
                    self._lost = error
                    self._changed.notify_all()
                return
            except StorageError as error:
                pause, self._fault = self._timing.beat / 4, error

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped.is_set() and self._lost is None:
                left = self._lease.renewed + self._timing.surrender - time.monotonic()
                if left <= 0:
                    self._lost = self._silence()
                    break
                self._changed.wait(left)
        if self._lost is not None and not self._stopped.is_set():
            self._on_lost(self._lost)

    def _silence(self) -> StorageError:
        silent = f"attempt {self._lease.attempt} could not renew its lease for {self._timing.surrender:.0f} s"
        return StorageError(f"{silent}: {self._fault or 'the store did not answer'}")
