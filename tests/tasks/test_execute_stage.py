"""One stage from lease to manifest: reuse, waiting, preemption, fencing, quarantine."""

import dataclasses
import functools
import platform
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attempts import failures, is_running, outcomes

from pipelines.spec.nodes import Resources, Retry, Timeout
from stages.contract import StoredInput
from stages.store.attempts import attempt_names, read_attempt
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import this_holder
from stages.store.layout import StagePaths, attempt_name
from stages.store.lease import Lease, LeaseKeeper, LeaseRecord, LeaseTiming, Observation, acquire
from stages.store.manifest import read_manifest
from stages.store.records import encode, read_record
from stages.trackers import TensorboardTracker, Trackers, Tracking, WandbTracker
from tasks.device_lock import Wanted, acquire_devices
from tasks.execute_stage import execute_stage
from tasks.observer import Observers
from tasks.stage_work import StageFailedError, StageWork
from tasks.stopping import StopSignal

MakeWork = Callable[..., StageWork]


IGNORE = Observers()


def test_a_stage_is_committed_once_and_then_reused(make_work: MakeWork) -> None:
    work = make_work()
    first = execute_stage(work, IGNORE)
    assert (first.state, first.first_step, first.last_step) == ("Committed", 1, 3)
    assert first.manifest == read_manifest(work.store, work.paths)
    assert execute_stage(work, IGNORE).state == "Reused"
    assert outcomes(work) == [("committed", "")]
    assert not list((work.cache / "scratch").iterdir())


def test_a_tracker_shows_the_metrics_of_all_attempts_and_one_that_is_missing_changes_nothing(
    make_work: MakeWork, tmp_path: Path, witness: Any
) -> None:
    folder = tmp_path / "curves"
    trackers = Trackers(
        tensorboard=TensorboardTracker(folder=str(folder)),
        wandb=WandbTracker(project="p", mode="offline", folder=str(tmp_path / "not there")),
    )
    work = make_work(fault="preempted", fault_once=str(tmp_path / "done"))
    work = dataclasses.replace(work, tracking=Tracking(pipeline="smoke", trackers=trackers))
    done = execute_stage(work, witness)
    assert (done.state, done.last_step) == ("Resumed", 3)
    files = sorted((folder / "smoke" / f"probe-{work.key[:8]}").iterdir())
    assert [file.read_bytes().count(b"loss/total") for file in files] == [1, 2]
    assert sum("tracker wandb has ended" in line for line in witness.lines) == 2, "one line for each attempt"


def test_each_attempt_records_the_program_that_made_it(make_work: MakeWork, witness: Any) -> None:
    work = make_work(fault="bug")
    failures(work, witness, 1)
    (name,) = attempt_names(work.store, work.paths)
    record = read_attempt(work.store, work.paths, name)
    assert record is not None
    assert record.provenance is not None
    assert (record.provenance.argv, record.provenance.python) == (tuple(sys.argv), platform.python_version())
    assert record.ended >= record.started


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


def test_waiting_for_the_devices_or_for_a_lease_counts_against_no_timeout(
    make_work: MakeWork, store: ConditionalStore, tmp_path: Path
) -> None:
    timeout = Timeout(total=5.8, stall=5.8, grace=5.0)
    for_devices = make_work(key="aa" * 32, share=False, changes={"timeout": timeout})
    for_lease = make_work(key="bb" * 32, changes={"timeout": timeout})
    lock = acquire_devices(Wanted("cpu"), tmp_path / "locks", lambda: False, lambda: None)
    lease = acquire(store, for_lease.paths, this_holder(), Observation())
    assert lock is not None
    assert isinstance(lease, Lease)
    for held in (lock, lease):
        threading.Timer(6.0, held.release).start()
    started = time.monotonic()
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda work: execute_stage(work, IGNORE), [for_devices, for_lease]))
    assert time.monotonic() - started > 6.0
    assert all(one.seconds < 5.8 for one in done)


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


def test_a_run_that_was_preempted_waits_for_whoever_came_in_between(
    make_work: MakeWork, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = dataclasses.replace(make_work(fault="preempted"), takeover=True)
    taken: list[Lease] = []
    release = Lease.release

    def release_to_another(lease: Lease) -> None:
        release(lease)
        if not taken:
            between = acquire(store, work.paths, this_holder("http://other/run"), Observation())
            assert isinstance(between, Lease)
            taken.append(between)
            threading.Timer(1.5, work.stop.request, ["received SIGINT"]).start()

    monkeypatch.setattr(Lease, "release", release_to_another)
    with pytest.raises(StageFailedError, match="received SIGINT"):
        execute_stage(work, IGNORE)
    lease = read_record(store, work.paths.lease, LeaseRecord)
    assert lease == taken[0].record


def test_a_stage_that_keeps_crashing_at_one_step_leaves_out_its_newest_progress_once_and_is_given_up(
    make_work: MakeWork, witness: Any
) -> None:
    work = make_work(fault="sigkill", fault_at=4, num_steps=5)
    first, second, third, next_day_run = failures(work, witness, 4)
    assert [error.cause for error in (first, second, third, next_day_run)] == ["infra"] * 4
    assert [error.retriable for error in (first, second, third, next_day_run)] == [True, True, False, False]
    assert "3 attempts in a row failed after step 3, one of them without the saved step 3" in third.message
    assert "4 attempts in a row failed" in next_day_run.message
    assert [told for told in witness.told if told.startswith("running")] == [
        "running: ",
        "running: resuming after step 3",
        "running: resuming after step 2",
        "running: resuming after step 3",
    ]


def test_a_stage_that_runs_out_of_memory_goes_on_with_smaller_settings_under_the_same_key(
    make_work: MakeWork, witness: Any
) -> None:
    retry = Retry(max=9, delay=(0.0,), jitter=0.0, on=("oom",), preempted_max=0, on_oom={"width": 2})
    work = make_work(changes={"retry": retry}, width=8, memory=3)
    first, second = failures(work, witness, 2)
    assert (first.cause, first.retriable, second.retriable) == ("oom", True, True)
    assert "RESOURCE_EXHAUSTED" in first.message
    assert first.message.endswith("next attempt with width 8 → 4")
    assert execute_stage(work, witness).manifest.key == work.key
    names = attempt_names(work.store, work.paths)
    records = [read_attempt(work.store, work.paths, name) for name in names]
    assert [record.lowered for record in records if record] == [{}, {"width": 4}, {"width": 2}]
    assert "note: lowered for want of memory: width 2" in witness.told


def test_a_setting_that_cannot_be_lowered_further_ends_the_retries_and_is_named(
    make_work: MakeWork, witness: Any
) -> None:
    retry = Retry(max=9, delay=(0.0,), jitter=0.0, on=("oom",), preempted_max=0, on_oom={"width": 2})
    first, second = failures(make_work(changes={"retry": retry}, width=2, memory=0), witness, 2)
    assert (first.retriable, second.retriable, second.cause) == (True, False, "oom")
    assert second.message.endswith("width cannot be lowered below 1: it needs more memory")


def test_secrets_reach_the_stage_and_nothing_that_is_kept(
    make_work: MakeWork, witness: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPER_SECRETS_DIR", str(tmp_path / "secrets"))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "hf_token").write_text("hf_very_secret")
    env = {"HF_TOKEN": "secret://hf_token", "MODE": "plain"}
    seen: list[str] = []
    for variable, fault in (("HF_TOKEN", "bug"), ("MODE", "none")):
        resources = replace_resources(make_work(), env=env)
        work = make_work(changes={"resources": resources}, show=variable, fault=fault)
        try:
            execute_stage(work, witness)
        except StageFailedError as error:
            seen.append(error.message)
    assert seen == ["ValueError: a bug ***"]
    assert "HF_TOKEN is ***" in witness.lines
    assert "MODE is plain" in witness.lines
    kept = [file.read_text() for file in (tmp_path / "store").rglob("*") if file.is_file()]
    assert any("HF_TOKEN is ***" in text for text in kept)
    assert not any("hf_very_secret" in text for text in kept)


def replace_resources(work: StageWork, **fields: Any) -> Resources:
    return dataclasses.replace(work.node.resources, **fields)


def test_an_unknown_secret_is_the_users_error(make_work: MakeWork, witness: Any) -> None:
    resources = replace_resources(make_work(), env={"HF_TOKEN": "secret://nowhere"})
    (error,) = failures(make_work(changes={"resources": resources}), witness, 1)
    assert error.cause == "user_error"
    assert "put it into the environment variable TEMPER_SECRET_NOWHERE or the file" in error.message


def test_a_stage_sees_only_the_gpus_that_it_took(
    make_work: MakeWork, witness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    resources = replace_resources(make_work(), accelerator="gpu", count=2, share=False)
    execute_stage(make_work(changes={"resources": resources}, show="CUDA_VISIBLE_DEVICES"), witness)
    assert "CUDA_VISIBLE_DEVICES is 4,5" in witness.lines
    resources = dataclasses.replace(resources, count=4)
    (error,) = failures(make_work(key="cd" * 32, changes={"resources": resources}), witness, 1)
    assert (error.cause, error.message) == (
        "user_error",
        "resources.count is 4, but of GPUs this host has 3 (4, 5, 7)",
    )


def test_a_run_that_shall_fail_on_a_conflict_does_not_wait(
    make_work: MakeWork, store: ConditionalStore, witness: Any
) -> None:
    held = acquire(store, make_work().paths, this_holder("http://other/run"), Observation())
    assert isinstance(held, Lease)
    (error,) = failures(make_work(changes={"on_conflict": "fail"}), witness, 1)
    assert (error.cause, error.retriable) == ("conflict", False)
    assert error.message == "http://other/run works on it, and on_conflict is fail"
    assert witness.told == []


@pytest.mark.parametrize("asked", ["by the file", "by the run"])
def test_a_run_that_takes_over_works_at_once_and_the_holder_is_fenced(
    make_work: MakeWork, witness: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    timing = LeaseTiming(ttl=4.0, beat=0.3, request=1.0)
    monkeypatch.setattr("tasks.attempt.LeaseKeeper", functools.partial(LeaseKeeper, timing=timing))
    pids = tmp_path / "pids"
    slow = make_work(num_steps=1000, step_seconds=0.05, pids=str(pids))
    errors: list[StageFailedError] = []
    holder = threading.Thread(target=lambda: errors.extend(failures(slow, Observers(), 1)))
    holder.start()
    while not pids.exists():
        time.sleep(0.02)
    if asked == "by the file":
        taker = make_work(changes={"on_conflict": "takeover"})
    else:
        taker = dataclasses.replace(make_work(), takeover=True)
    assert execute_stage(taker, witness).manifest.epoch == 2
    assert witness.told[0].startswith("note: taken over from process ")
    holder.join(30)
    assert [error.cause for error in errors] == ["fenced"]
    assert not any(is_running(pid) for pid in pids.read_text().split())


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
