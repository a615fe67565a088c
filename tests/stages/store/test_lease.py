import queue
import threading
import time
from dataclasses import dataclass, field

import pytest

from stages.errors import LeaseLostError, StorageError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import Holder, this_holder
from stages.store.layout import StagePaths
from stages.store.lease import HeldBy, Lease, LeaseKeeper, LeaseRecord, LeaseTiming, Observation, acquire
from stages.store.memory import MemoryStore
from stages.store.records import read_record

ELSEWHERE = Holder(host="b", boot_id="2", pid_namespace="pid:[1]", pid=7, pid_start="99", run_url="http://run/1")


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def take(store: ConditionalStore, paths: StagePaths, holder: Holder | None = None) -> Lease:
    lease = acquire(store, paths, holder or this_holder(), Observation())
    assert isinstance(lease, Lease)
    return lease


def recorded(store: ConditionalStore, paths: StagePaths) -> LeaseRecord:
    record = read_record(store, paths.lease, LeaseRecord)
    assert record is not None
    return record


def test_the_first_lease_has_epoch_one_and_names_its_attempt(store: ConditionalStore, paths: StagePaths) -> None:
    lease = take(store, paths)
    assert lease.epoch == 1
    assert lease.attempt.startswith("000001-")
    assert recorded(store, paths).holder == this_holder()


def test_a_held_lease_names_its_holder_and_the_seconds_left(store: ConditionalStore, paths: StagePaths) -> None:
    take(store, paths, ELSEWHERE)
    held = acquire(store, paths, this_holder(), Observation())
    assert isinstance(held, HeldBy)
    assert held.record.holder.run_url == "http://run/1"
    assert 119 < held.seconds_left <= 120


def test_a_released_lease_is_taken_at_once_with_the_next_epoch(store: ConditionalStore, paths: StagePaths) -> None:
    lease = take(store, paths, ELSEWHERE)
    lease.renew()
    lease.release()
    assert recorded(store, paths).state == "released"
    assert take(store, paths).epoch == 2


def test_a_living_holder_loses_its_lease_to_a_takeover_and_notices_when_it_renews(
    store: ConditionalStore, paths: StagePaths
) -> None:
    loser = take(store, paths, ELSEWHERE)
    taken = acquire(store, paths, this_holder(), Observation(), takeover=True)
    assert isinstance(taken, Lease)
    assert (taken.epoch, recorded(store, paths)) == (2, taken.record)
    with pytest.raises(LeaseLostError, match=f"attempt {taken.attempt} has it"):
        loser.renew()


def test_a_holder_that_is_about_to_commit_keeps_its_lease_from_a_takeover(
    store: ConditionalStore, paths: StagePaths
) -> None:
    lease = take(store, paths, ELSEWHERE)
    lease.mark_committing()
    assert isinstance(acquire(store, paths, this_holder(), Observation(), takeover=True), HeldBy)
    lease.release()
    assert take(store, paths).epoch == 2


def test_a_silent_holder_is_replaced_after_the_ttl_of_the_observers_own_clock(
    store: ConditionalStore, paths: StagePaths
) -> None:
    lost = take(store, paths, ELSEWHERE)
    clock = Clock(1000.0)
    observation = Observation(clock)
    assert isinstance(acquire(store, paths, this_holder(), observation), HeldBy)
    clock.now += 119.9
    assert isinstance(acquire(store, paths, this_holder(), observation), HeldBy)
    clock.now += 0.2
    taken = acquire(store, paths, this_holder(), observation)
    assert isinstance(taken, Lease)
    assert taken.epoch == 2
    for action in (lost.renew, lost.mark_committing, lost.release):
        with pytest.raises(LeaseLostError, match=f"attempt {taken.attempt} has it"):
            action()


def test_every_renewal_starts_the_observers_ttl_again(store: ConditionalStore, paths: StagePaths) -> None:
    lease = take(store, paths, ELSEWHERE)
    clock = Clock()
    observation = Observation(clock)
    for _ in range(3):
        assert isinstance(acquire(store, paths, this_holder(), observation), HeldBy)
        clock.now += 100
        lease.renew()
    assert isinstance(acquire(store, paths, this_holder(), observation), HeldBy)


def test_a_holder_that_was_first_seen_now_is_given_the_whole_ttl(store: ConditionalStore, paths: StagePaths) -> None:
    take(store, paths, ELSEWHERE)
    # A clock far from zero: age must not be counted from the observation's birth.
    held = acquire(store, paths, this_holder(), Observation(Clock(1e6)))
    assert isinstance(held, HeldBy)
    assert held.seconds_left == 120


def test_a_lease_that_vanished_is_lost_and_not_made_again(store: ConditionalStore, paths: StagePaths) -> None:
    lease = take(store, paths)
    store.delete(paths.lease)
    with pytest.raises(LeaseLostError, match="it is gone"):
        lease.renew()
    assert store.get(paths.lease) is None


@dataclass
class LosesAnswers(MemoryStore):
    """Writes, and then pretends that it did not, once for each entry of `failures`."""

    failures: list[type[StorageError]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("memory://loses-answers")

    def _answer(self, generation: str) -> str:
        if self.failures:
            raise self.failures.pop(0)("the answer was lost")
        return generation

    def create(self, path: str, data: bytes) -> str:
        return self._answer(super().create(path, data))

    def swap(self, path: str, data: bytes, generation: str) -> str:
        return self._answer(super().swap(path, data, generation))


def test_an_acquisition_whose_answer_was_lost_is_recognised(paths: StagePaths) -> None:
    store = LosesAnswers()
    for epoch in (1, 2):
        store.failures = [PreconditionFailed]
        lease = take(store, paths, ELSEWHERE)
        assert lease.epoch == epoch
        lease.renew()
        lease.release()


@pytest.mark.parametrize("failure", [PreconditionFailed, StorageError])
def test_a_renewal_whose_answer_was_lost_does_not_lose_the_lease(
    paths: StagePaths, failure: type[StorageError]
) -> None:
    store = LosesAnswers()
    lease = take(store, paths, ELSEWHERE)
    store.failures = [failure]
    if failure is StorageError:
        with pytest.raises(StorageError):
            lease.renew()
    lease.renew()
    lease.mark_committing()
    assert recorded(store, paths).state == "committing"
    lease.release()


@pytest.mark.parametrize("failure", [PreconditionFailed, StorageError])
def test_a_renewal_counts_from_a_write_that_others_can_see(paths: StagePaths, failure: type[StorageError]) -> None:
    store = LosesAnswers()
    lease = take(store, paths, ELSEWHERE)
    store.failures = [failure]
    if failure is StorageError:
        with pytest.raises(StorageError):
            lease.renew()
    unanswered = store.get(paths.lease)
    asked = time.monotonic()
    lease.renew()
    assert lease.renewed >= asked
    assert store.get(paths.lease) != unanswered
    assert recorded(store, paths) == lease.record


def test_a_lease_in_a_form_that_this_version_does_not_know_is_named(store: ConditionalStore, paths: StagePaths) -> None:
    store.create(paths.lease, b'{"epoch": "1"}')
    with pytest.raises(StorageError, match=r"lease\.json: no LeaseRecord that this version reads"):
        acquire(store, paths, this_holder(), Observation())


@pytest.mark.parametrize(("ttl", "beat", "request_seconds"), [(90, 20, 30), (1, 0.4, 0.1)])
def test_timing_that_could_lose_a_living_holder_is_refused(ttl: float, beat: float, request_seconds: float) -> None:
    with pytest.raises(ValueError, match="must be more than"):
        LeaseTiming(ttl, beat, request_seconds)


FAST = LeaseTiming(ttl=1.0, beat=0.05, request=0.1)


def test_a_keeper_renews_until_it_is_stopped(paths: StagePaths) -> None:
    store = MemoryStore("memory://keeper")
    lost: list[Exception] = []
    lease = take(store, paths)
    keeper = LeaseKeeper(lease, lost.append, FAST)
    time.sleep(0.3)
    keeper.stop()
    beats = recorded(store, paths).beat
    assert beats >= 2
    time.sleep(0.15)
    assert recorded(store, paths).beat == beats
    lease.release()
    assert lost == []


def test_a_keeper_tells_once_when_another_attempt_has_the_lease(paths: StagePaths) -> None:
    store = MemoryStore("memory://keeper")
    told = threading.Event()
    lost: list[Exception] = []

    def on_lost(error: Exception) -> None:
        lost.append(error)
        told.set()

    keeper = LeaseKeeper(take(store, paths), on_lost, FAST)
    store.delete(paths.lease)
    taken = take(store, paths, ELSEWHERE)
    assert told.wait(5)
    keeper.stop()
    assert [type(error) for error in lost] == [LeaseLostError]
    assert taken.attempt in str(lost[0])


def test_a_keeper_gives_up_although_its_request_hangs(paths: StagePaths) -> None:
    hang = threading.Event()

    class Hangs(MemoryStore):
        def swap(self, path: str, data: bytes, generation: str) -> str:
            hang.wait(10)
            return super().swap(path, data, generation)

    store = Hangs("memory://hangs")
    told: queue.Queue[Exception] = queue.Queue()
    started = time.monotonic()
    keeper = LeaseKeeper(take(store, paths), told.put, FAST)
    error = told.get(timeout=5)
    assert isinstance(error, StorageError)
    assert "could not renew its lease for 1 s: the store did not answer" in str(error)
    assert time.monotonic() - started > 0.7
    hang.set()
    keeper.stop()


def test_a_keeper_survives_errors_shorter_than_the_ttl(paths: StagePaths) -> None:
    store = LosesAnswers()
    lost: list[Exception] = []
    lease = take(store, paths)
    store.failures = [StorageError, StorageError, StorageError]
    keeper = LeaseKeeper(lease, lost.append, FAST)
    time.sleep(0.3)
    keeper.stop()
    assert store.failures == []
    assert lost == []
    lease.release()


def test_a_lease_that_could_not_be_released_is_free_for_the_process_that_gave_it_up(paths: StagePaths) -> None:
    class Fails(MemoryStore):
        failing = False

        def swap(self, path: str, data: bytes, generation: str) -> str:
            if self.failing:
                raise StorageError("the disk is full")
            return super().swap(path, data, generation)

    store = Fails("memory://fails")
    lease = acquire(store, paths, this_holder(), Observation())
    assert isinstance(lease, Lease)
    assert isinstance(acquire(store, paths, this_holder("another run"), Observation()), HeldBy)
    store.failing = True
    with pytest.raises(StorageError):
        lease.release()
    store.failing = False
    other = this_holder().model_copy(update={"host": "elsewhere"})
    assert isinstance(acquire(store, paths, other, Observation()), HeldBy)
    again = acquire(store, paths, this_holder("another run"), Observation())
    assert isinstance(again, Lease)
    assert again.epoch == 2


def test_a_lease_that_was_taken_without_knowing_it_is_free_for_the_process_that_took_it(paths: StagePaths) -> None:
    class Fails(MemoryStore):
        failures = 1

        def create(self, path: str, data: bytes) -> str:
            generation = super().create(path, data)
            if self.failures:
                self.failures -= 1
                raise StorageError("the connection broke")
            return generation

    store = Fails("memory://breaks")
    with pytest.raises(StorageError):
        acquire(store, paths, this_holder(), Observation())
    again = acquire(store, paths, this_holder(), Observation())
    assert isinstance(again, Lease)
    assert again.epoch == 2
