"""Real child processes watched to every kind of end."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.errors import LeaseLostError, StorageError
from tasks.launchers.local import LocalChild, group_runs
from tasks.lost_lease import LostLease
from tasks.stopping import StopSignal
from tasks.supervise import BeatWatch, Deadlines, Ending, supervise

PATIENT = Deadlines(total=60.0, stall=60.0, grace=10.0)

StartProbe = Callable[..., tuple[LocalChild, Any]]


def watch(
    child: LocalChild,
    deadlines: Deadlines = PATIENT,
    stop: StopSignal | None = None,
    lost: LostLease | None = None,
    beats: BeatWatch | None = None,
) -> Ending:
    beats = beats or BeatWatch(lambda beat: None)
    return supervise(child, beats, deadlines, stop or StopSignal(), lost or LostLease())


def test_a_finished_stage_has_no_cause_and_leaves_its_result_beats_and_lines(start_probe: StartProbe) -> None:
    child, watched = start_probe()
    ending = watch(child)
    assert ending.cause is None, ending.message
    assert ending.result is not None
    assert (ending.result.first_step, ending.result.last_step) == (1, 3)
    assert [file.path for file in ending.result.outputs["report"]] == ["artifact.json", "rows.json"]
    assert [beat.step for beat in watched.beats] == [1, 2, 3]
    assert "start after step 0" in watched.lines


def test_exit_codes_tell_the_cause(start_probe: StartProbe) -> None:
    causes = ("user_error", "bug", "storage", "preempted")
    running = [(cause, start_probe(fault=cause)[0]) for cause in causes]
    endings = {cause: watch(child) for cause, child in running}
    assert {cause: ending.cause for cause, ending in endings.items()} == {cause: cause for cause in causes}
    assert "bad data" in endings["user_error"].message
    assert "ValueError: a bug" in endings["bug"].message


def test_an_output_that_the_stage_does_not_write_is_a_bug(start_probe: StartProbe) -> None:
    child, _ = start_probe(fault="no_output", fault_at=9)
    ending = watch(child)
    assert ending.cause == "bug"
    assert "checkpoint/artifact.json" in ending.message


def test_a_killed_child_is_a_fault_of_the_infrastructure(start_probe: StartProbe) -> None:
    child, _ = start_probe(fault="sigkill")
    ending = watch(child)
    assert (ending.cause, ending.message) == ("infra", "killed by SIGKILL")


def test_native_code_that_hangs_with_the_interpreters_lock_is_killed_at_the_deadline(start_probe: StartProbe) -> None:
    child, watched = start_probe(fault="native_hang")
    assert watched.begun.wait(30)
    started = time.monotonic()
    ending = watch(child, Deadlines(total=0.5, stall=None, grace=0.5))
    assert ending.cause == "timeout"
    assert time.monotonic() - started < 3
    assert not group_runs(child.pid)


def test_a_stage_without_beats_is_stalled_and_one_that_heeds_sigterm_saves_first(start_probe: StartProbe) -> None:
    child, watched = start_probe(fault="hang")
    assert watched.begun.wait(30)
    ending = watch(child, Deadlines(total=None, stall=0.5, grace=10.0))
    assert ending.cause == "stalled"
    assert ending.result is not None
    assert (ending.result.outcome, ending.result.message) == ("preempted", "saved step 2")


def test_a_stage_that_takes_longer_than_the_stall_limit_does_not_stall_while_it_beats(start_probe: StartProbe) -> None:
    child, watched = start_probe(num_steps=12, step_seconds=0.3)
    assert watched.begun.wait(30)
    assert watch(child, Deadlines(total=None, stall=2.0, grace=5.0), beats=watched.watch).cause is None


def test_a_request_to_stop_leaves_the_grace_to_save(start_probe: StartProbe) -> None:
    child, watched = start_probe(num_steps=1000, step_seconds=0.02)
    assert watched.begun.wait(30)
    stop = StopSignal()
    stop.request("received SIGTERM")
    ending = watch(child, stop=stop)
    assert (ending.cause, ending.message) == ("stopped", "received SIGTERM")
    assert ending.result is not None
    assert ending.result.outcome == "preempted"


def test_a_stage_that_ignores_sigterm_is_killed_after_the_grace(start_probe: StartProbe) -> None:
    child, watched = start_probe(fault="deaf")
    assert watched.begun.wait(30)
    stop = StopSignal()
    stop.request("received SIGTERM")
    started = time.monotonic()
    assert watch(child, Deadlines(None, None, grace=1.0), stop=stop).cause == "stopped"
    assert 0.9 < time.monotonic() - started < 4


def test_a_stopped_process_is_killed_at_the_deadline(start_probe: StartProbe) -> None:
    child, watched = start_probe(num_steps=1000, step_seconds=0.02)
    assert watched.begun.wait(30)
    os.killpg(child.pid, signal.SIGSTOP)
    started = time.monotonic()
    assert watch(child, Deadlines(total=None, stall=0.5, grace=0.5)).cause == "stalled"
    assert time.monotonic() - started < 4
    assert not group_runs(child.pid)


@pytest.mark.parametrize(
    ("error", "cause"), [(LeaseLostError("attempt 2 has it"), "fenced"), (StorageError("no answer"), "storage")]
)
def test_a_lost_lease_kills_at_once_and_tells_how_it_was_lost(
    start_probe: StartProbe, error: LeaseLostError | StorageError, cause: str
) -> None:
    child, watched = start_probe(fault="deaf")
    assert watched.begun.wait(30)
    lost = LostLease()
    lost.set(error)
    started = time.monotonic()
    ending = watch(child, Deadlines(None, None, grace=60.0), lost=lost)
    assert (ending.cause, ending.message) == (cause, str(error))
    assert time.monotonic() - started < 3


def test_what_the_stage_started_is_gone_with_it(start_probe: StartProbe, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child, _ = start_probe(fault="sigkill", pids=str(pids))
    watch(child)
    assert all(not Path(f"/proc/{pid}").exists() or _is_zombie(int(pid)) for pid in pids.read_text().split())


def test_closing_the_life_line_kills_the_group_even_while_native_code_holds_the_interpreter(
    start_probe: StartProbe, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    child, watched = start_probe(fault="native_hang", pids=str(pids))
    assert watched.begun.wait(30)
    assert child._process.stdin is not None
    child._process.stdin.close()
    deadline = time.monotonic() + 5
    while group_runs(child.pid) and time.monotonic() < deadline:
        child.poll()
        time.sleep(0.02)
    assert not group_runs(child.pid)


def _is_zombie(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, ProcessLookupError):
        return True
