import sys
import threading
from dataclasses import dataclass

import pytest

from stages.errors import StorageError, UserError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import StagePaths, attempt_name
from stages.store.memory import MemoryStore
from stages.store.segments import MetricsWriter, SegmentWriter, read_log, read_metrics

FIRST, SECOND = attempt_name(1, "aa"), attempt_name(2, "bb")


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_rows_come_back_in_the_order_of_steps(store: ConditionalStore, paths: StagePaths) -> None:
    writer = MetricsWriter(store, paths.attempt(FIRST), 1)
    for step in (1, 2):
        writer.append(step, {"loss/nll": 1 / step})
        writer.flush()
    writer.append(3, {"loss/nll": 0.25})
    assert [(row.step, row.numbers["loss/nll"]) for row in read_metrics(store, paths)] == [(1, 1.0), (2, 0.5)]
    writer.flush()
    assert [row.step for row in read_metrics(store, paths)] == [1, 2, 3]


def test_where_attempts_overlap_the_highest_epoch_counts(store: ConditionalStore, paths: StagePaths) -> None:
    for attempt, epoch, steps in ((FIRST, 1, (1, 2, 3)), (SECOND, 2, (2,))):
        writer = MetricsWriter(store, paths.attempt(attempt), epoch)
        for step in steps:
            writer.append(step, {"loss/nll": float(epoch)})
        writer.flush()
    assert [(row.step, row.epoch) for row in read_metrics(store, paths)] == [(1, 1), (2, 2), (3, 1)]


def test_numbers_of_one_step_of_one_attempt_are_joined(store: ConditionalStore, paths: StagePaths) -> None:
    writer = MetricsWriter(store, paths.attempt(FIRST), 1)
    writer.append(1, {"loss/nll": 1.0})
    writer.append(1, {"reward/mean": 0.5})
    writer.flush()
    (row,) = read_metrics(store, paths)
    assert row.numbers == {"loss/nll": 1.0, "reward/mean": 0.5}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_an_error_that_names_it(value: float, paths: StagePaths) -> None:
    writer = MetricsWriter(MemoryStore("memory://m"), paths.attempt(FIRST), 1)
    with pytest.raises(UserError, match=r"loss/nll is (nan|inf) at step 7"):
        writer.append(7, {"loss/nll": value})


def test_text_is_stored_once_the_time_is_up_and_not_before(store: ConditionalStore, paths: StagePaths) -> None:
    clock = Clock(100.0)
    log = SegmentWriter(store, paths.attempt(FIRST).log, clock=clock)
    log.append("one\n")
    clock.now += 29
    log.append("two\n")
    assert read_log(store, paths) == ""
    clock.now += 1
    log.flush_if_due()
    assert read_log(store, paths) == "one\ntwo\n"
    log.append("three\n")
    log.flush()
    log.flush()
    assert [listed.path[-10:] for listed in store.list(paths.attempt(FIRST).log_folder)] == ["000000.txt", "000001.txt"]


def test_the_newest_attempt_that_printed_is_read_and_others_by_name(store: ConditionalStore, paths: StagePaths) -> None:
    for attempt in (FIRST, SECOND):
        log = SegmentWriter(store, paths.attempt(attempt).log)
        log.append(f"{attempt} ünï\n")
        log.flush()
    MetricsWriter(store, paths.attempt(attempt_name(3, "silent")), 3).flush()
    assert read_log(store, paths) == f"{SECOND} ünï\n"
    assert read_log(store, paths, FIRST) == f"{FIRST} ünï\n"


@pytest.mark.parametrize("failure", [PreconditionFailed, StorageError])
@pytest.mark.parametrize("writes", [True, False])
def test_a_failed_flush_neither_loses_nor_repeats_text(
    paths: StagePaths, failure: type[StorageError], writes: bool
) -> None:
    failures = [failure]

    class Fails(MemoryStore):
        def create(self, path: str, data: bytes) -> str:
            if not failures:
                return super().create(path, data)
            if writes:
                super().create(path, data)
            raise failures.pop()("no answer")

    store = Fails("memory://fails")
    log = SegmentWriter(store, paths.attempt(FIRST).log)
    log.append("one\n")
    try:
        log.flush()
    except StorageError:
        log.append("two\n")
        log.flush()
    else:
        log.append("two\n")
        log.flush()
    assert read_log(store, paths) == "one\ntwo\n"


def test_rows_that_come_while_another_thread_stores_are_kept_once_and_in_order() -> None:
    lines = [f"{n}\n" for n in range(20_000)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        # One round finds a writer that is not safe about every second time.
        assert [_written_while_stored(lines) for _ in range(12)] == ["".join(lines)] * 12
    finally:
        sys.setswitchinterval(interval)


def _written_while_stored(lines: list[str]) -> str:
    store, paths = MemoryStore("memory://two-threads"), StagePaths("sft", "0" * 64)
    log, done = SegmentWriter(store, paths.attempt(FIRST).log), threading.Event()

    def store_all_the_time() -> None:
        while not done.is_set():
            log.flush()

    other = threading.Thread(target=store_all_the_time)
    other.start()
    for line in lines:
        log.append(line)
    done.set()
    other.join()
    log.flush()
    return read_log(store, paths, FIRST)
