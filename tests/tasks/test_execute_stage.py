"""One stage from lease to manifest: reuse, waiting, preemption, fencing, quarantine."""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.contract import StoredInput
from stages.store.attempts import attempt_names, read_attempt
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import this_holder
from stages.store.layout import StagePaths, attempt_name
from stages.store.lease import Lease, LeaseKeeper, LeaseRecord, LeaseTiming, Observation, acquire
from stages.store.manifest import read_manifest
from stages.store.records import encode, read_record
from tasks.device_lock import acquire_devices
from tasks.execute_stage import execute_stage
from tasks.observer import Observers
from tasks.stage_work import StageFailedError, StageWork
from tasks.stopping import StopSignal

MakeWork = Callable[..., StageWork]


IGNORE = Observers()


def outcomes(work: StageWork) -> list[tuple[str, str]]:
    names = attempt_names(work.store, work.paths)
    records = [read_attempt(work.store, work.paths, name) for name in names]
    return [(record.outcome, record.cause) for record in records if record is not None]


def test_a_stage_is_committed_once_and_then_reused(make_work: MakeWork) -> None:
    work = make_work()
    first = execute_stage(work, IGNORE)
    assert (first.state, first.first_step, first.last_step) == ("Committed", 1, 3)
    assert first.manifest == read_manifest(work.store, work.paths)
    assert execute_stage(work, IGNORE).state == "Reused"
    assert outcomes(work) == [("committed", "")]
    assert not list((work.cache / "scratch").iterdir())


def test_the_lease_is_released_after_success_and_after_failure(make_work: MakeWork) -> None:
    for key, fault in (("aa" * 32, "none"), ("bb" * 32, "bug")):
        work = make_work(key=key, fault=fault)
        try:
            execute_stage(work, IGNORE)
        except StageFailedError:
            assert fault == "bug"
        lease = read_record(work.store, work.paths.lease, LeaseRecord)
        assert lease is not None
        assert lease.state == "released"


def test_the_log_of_the_child_is_in_the_store_and_a_limited_part_of_it_is_passed_on(
    make_work: MakeWork, witness: Any
) -> None:
    work = make_work()
    done = execute_stage(work, witness)
    assert "start after step 0" in witness.lines
    stored = work.store.get(work.paths.attempt(done.manifest.attempt).log(0))
    assert stored is not None
    assert stored.data.decode().splitlines() == witness.lines


def test_a_stage_that_another_process_holds_is_waited_for_and_its_result_reused(
    make_work: MakeWork, store: ConditionalStore, witness: Any
) -> None:
    held = acquire(store, make_work().paths, this_holder("http://other/run"), Observation())
    assert isinstance(held, Lease)
    results: list[str] = []
    waiter = threading.Thread(target=lambda: results.append(execute_stage(make_work(), witness).state))
    waiter.start()
    waiter.join(1.5)
    assert waiter.is_alive()
    held.release()
    waiter.join(30)
    assert results == ["Committed"]
    assert witness.told == ["waiting: waiting for http://other/run", "running: "]
    assert [beat.step for beat in witness.beats] == [1, 2, 3]


def test_a_stop_ends_the_wait_for_a_lease_and_for_the_devices(make_work: MakeWork, store: ConditionalStore) -> None:
    held = acquire(store, make_work().paths, this_holder(), Observation())
    assert isinstance(held, Lease)
    stop = StopSignal()
    threading.Timer(0.5, stop.request, ["received SIGINT"]).start()
    with pytest.raises(StageFailedError, match="received SIGINT") as caught:
        execute_stage(make_work(stop=stop), IGNORE)
    assert caught.value.cause == "stopped"


def run_together(*works: StageWork) -> None:
    threads = [threading.Thread(target=execute_stage, args=(work, IGNORE)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize(("share", "num_at_once"), [(False, 1), (True, 2)])
def test_stages_on_one_device_take_turns_unless_they_share(
    share: bool, num_at_once: int, make_work: MakeWork, tmp_path: Path
) -> None:
    spans = tmp_path / "spans"
    run_together(
        *(
            make_work(key=letter * 64, share=share, num_steps=1, step_seconds=3.0, spans=str(spans))
            for letter in ("a", "b")
        )
    )
    first, second = sorted([float(time) for time in line.split()] for line in spans.read_text().splitlines())
    assert (2 if second[0] < first[1] else 1) == num_at_once


def test_waiting_for_the_devices_counts_against_no_timeout(make_work: MakeWork, tmp_path: Path) -> None:
    lock = acquire_devices("cpu", tmp_path / "locks", lambda: False, lambda: None)
    assert lock is not None
    threading.Timer(6.0, lock.release).start()
    work = make_work(share=False)
    limits = dataclasses.replace(work.node.timeout, total=5.8, stall=5.8)
    work = dataclasses.replace(work, node=dataclasses.replace(work.node, timeout=limits))
    done = execute_stage(work, IGNORE)
    assert done.seconds < 5.8


def test_a_preempted_stage_goes_on_from_what_it_saved_until_its_budget_is_used_up(
    make_work: MakeWork, witness: Any
) -> None:
    work = make_work(fault="preempted", preempted_max=1)
    with pytest.raises(StageFailedError, match="saved") as caught:
        execute_stage(work, witness)
    assert witness.told == [
        "running: ",
        "preempted: preempted, 0 more are allowed; going on from what was saved",
        "running: resuming after step 1",
    ]
    assert (caught.value.cause, caught.value.retriable) == ("preempted", False)
    assert outcomes(work) == [("preempted", "preempted")] * 2


def test_a_stolen_lease_kills_the_child_and_nothing_is_committed(
    make_work: MakeWork, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    timing = LeaseTiming(ttl=4.0, beat=0.3, request=1.0)
    monkeypatch.setattr("tasks.attempt.LeaseKeeper", functools.partial(LeaseKeeper, timing=timing))
    pids = tmp_path / "pids"
    work = make_work(num_steps=1000, step_seconds=0.05, fault="deaf", fault_at=900, grace=60.0, pids=str(pids))
    thief = threading.Thread(target=steal_when_running, args=(work, pids))
    thief.start()
    with pytest.raises(StageFailedError) as caught:
        execute_stage(work, IGNORE)
    thief.join()
    assert (caught.value.cause, caught.value.retriable) == ("fenced", False)
    assert read_manifest(store, work.paths) is None
    assert outcomes(work) == [("fenced", "fenced")]
    assert not any(is_running(pid) for pid in pids.read_text().split())


def steal_when_running(work: StageWork, pids: Path) -> None:
    while not pids.exists():
        time.sleep(0.02)
    while True:
        stored = work.store.get(work.paths.lease)
        assert stored is not None
        record = LeaseRecord(epoch=2, attempt=attempt_name(2, "thief"), holder=this_holder(), state="held", beat=0)
        try:
            work.store.swap(work.paths.lease, encode(record), stored.generation)
            return
        except PreconditionFailed:
            continue


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_a_corrupt_input_puts_its_producer_into_quarantine(make_work: MakeWork, store: ConditionalStore) -> None:
    made = execute_stage(make_work(), IGNORE).manifest
    files = made.outputs["report"]
    damaged = tuple(entry.model_copy(update={"crc32c": "00000000"}) for entry in files)
    given = StoredInput(
        stage="probe", key=made.key, output="report", folder=made.output_folder("report"), files=damaged
    )
    with pytest.raises(StageFailedError, match="crc32c") as caught:
        execute_stage(make_work("probe_consumer", key="cd" * 32, inputs={"report": given}), IGNORE)
    assert caught.value.cause == "corrupt"
    assert read_manifest(store, StagePaths("probe", made.key)) is None


def test_an_interpreter_that_is_not_there_is_the_users_error(make_work: MakeWork) -> None:
    work = make_work()
    resources = dataclasses.replace(work.node.resources, python="/nowhere/python")
    work = dataclasses.replace(work, node=dataclasses.replace(work.node, resources=resources))
    with pytest.raises(StageFailedError, match="cannot start /nowhere/python") as caught:
        execute_stage(work, IGNORE)
    assert caught.value.cause == "user_error"
    assert outcomes(work) == [("failed", "user_error")]
