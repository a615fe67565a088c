"""The flow's process is killed or stopped while a stage works."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.lease import LeaseRecord
from stages.store.progress import committed_points
from stages.store.records import read_record
from stages.store.runs import RunRecord, latest_run

RunFile = Callable[..., tuple[int, RunRecord]]
StartTemper = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., None]
WritePipeline = Callable[..., Path]

GONE_SECONDS = 5.0
LONG = "{total: 10m, stall: 10m, grace: 10m}"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Every running process below one, at any depth."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def slow_probe(pids: Path) -> str:
    return f"  slow: {{uses: probe, with: {{num_steps: 400, step_seconds: 0.05, pids: {pids}}}}}\n"


def saved_step(tmp_path: Path) -> int:
    store = open_store(str(tmp_path / "store"))
    record = latest_run(store, "probes")
    if record is None or record.stages[0].key is None:
        return 0
    points = committed_points(store, StagePaths("probe", record.stages[0].key))
    return points[0].step if points else 0


def test_kill_of_the_flow_takes_the_stage_and_the_own_server_along_and_the_next_run_resumes(
    start_temper: StartTemper,
    write_pipeline: WritePipeline,
    wait_for: WaitFor,
    run_file: RunFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = os.environ["PREFECT_API_URL"]
    monkeypatch.delenv("PREFECT_API_URL")
    pids = tmp_path / "pids"
    file = write_pipeline(slow_probe(pids))
    temper = start_temper("run", str(file))
    wait_for(lambda: saved_step(tmp_path) >= 2, "a saved step", 120)
    below = descendants(temper.pid)
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below}
    assert any(b"flows.server_process" in command for command in commands.values())
    assert {int(pid) for pid in pids.read_text().split()} <= below
    temper.kill()
    wait_for(lambda: not any(map(is_running, below)), "the end of all that the flow started", GONE_SECONDS)

    saved = saved_step(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", address)
    quick = ("--set", "stages.slow.with.step_seconds=0", "--set", "stages.slow.with.save_every_steps=400")
    code, record = run_file(write_pipeline(slow_probe(tmp_path / "again")), *quick)
    assert (code, record.stages[0].outcome, record.stages[0].first_step) == (0, "resumed", saved + 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_saves_its_progress_releases_the_lease_and_says_so(
    number: signal.Signals,
    code: int,
    prefect_api: str,
    start_temper: StartTemper,
    write_pipeline: WritePipeline,
    wait_for: WaitFor,
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    temper = start_temper(
        "run", str(write_pipeline(slow_probe(pids))), "--set", "stages.slow.with.save_every_steps=400"
    )
    wait_for(pids.exists, "the stage's start")
    time.sleep(1)
    temper.send_signal(number)
    output, _ = temper.communicate(timeout=60)
    assert temper.returncode == code, output
    assert not any(is_running(int(pid)) for pid in pids.read_text().split())
    assert saved_step(tmp_path) >= 1
    store = open_store(str(tmp_path / "store"))
    record = latest_run(store, "probes")
    assert record is not None
    assert (record.outcome, record.message) == ("stopped", f"received {number.name}")
    assert (record.stages[0].outcome, record.stages[0].message) == ("stopped", f"received {number.name}")
    assert record.stages[0].key is not None
    lease = read_record(store, StagePaths("probe", record.stages[0].key).lease, LeaseRecord)
    assert lease is not None
    assert lease.state == "released"
    assert f"probes stopped: received {number.name}" in output


def test_a_second_ctrl_c_ends_at_once_what_does_not_heed_the_first(
    prefect_api: str, start_temper: StartTemper, write_pipeline: WritePipeline, wait_for: WaitFor, tmp_path: Path
) -> None:
    pids, once = tmp_path / "pids", tmp_path / "once"
    settings = f"fault: deaf, fault_once: {once}, pids: {pids}"
    temper = start_temper("run", str(write_pipeline(f"  one: {{uses: probe, with: {{{settings}}}}}\n", timeout=LONG)))
    wait_for(once.exists, "the fault")
    temper.send_signal(signal.SIGINT)
    time.sleep(1)
    assert temper.poll() is None
    temper.send_signal(signal.SIGINT)
    assert temper.wait(GONE_SECONDS) == 130
    stages = [int(pid) for pid in pids.read_text().split()]
    wait_for(lambda: not any(map(is_running, stages)), "the end of the stage", GONE_SECONDS)


def test_a_stop_while_a_task_waits_for_its_next_attempt_does_not_wait_with_it(
    prefect_api: str, start_temper: StartTemper, write_pipeline: WritePipeline, wait_for: WaitFor, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    file = write_pipeline(
        f"  one: {{uses: probe, with: {{fault: sigkill, fault_once: {once}}}}}\n",
        retry="{max: 1, delay: [500], on: [infra]}",
    )
    temper = start_temper("run", str(file))
    wait_for(once.exists, "the fault")
    time.sleep(2)
    started = time.monotonic()
    temper.terminate()
    output, _ = temper.communicate(timeout=60)
    assert temper.returncode == 143, output
    assert time.monotonic() - started < 20


def test_a_killed_child_fails_the_run_without_retries_and_the_next_run_resumes_after_the_committed_step(
    run_file: RunFile, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    settings = f"num_steps: 6, save_every_steps: 2, fault: sigkill, fault_at: 6, fault_once: {tmp_path / 'once'}"
    file = write_pipeline(f"  one: {{uses: probe, with: {{{settings}}}}}\n")
    code, record = run_file(file)
    assert (code, record.stages[0].outcome) == (1, "failed")
    first, *tail = record.stages[0].message.splitlines()
    assert (first, tail[-1]) == ("infra: killed by SIGKILL", "start after step 0")
    code, record = run_file(file)
    assert (code, record.stages[0].outcome) == (0, "resumed")
    assert (record.stages[0].first_step, record.stages[0].last_step) == (5, 6)


def test_two_runs_at_once_train_once(
    prefect_api: str, start_temper: StartTemper, write_pipeline: WritePipeline, tmp_path: Path
) -> None:
    file = write_pipeline("  one: {uses: probe, with: {num_steps: 30, step_seconds: 0.2}}\n")
    runs = [start_temper("run", str(file)) for _ in range(2)]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sorted("waiting for" in output for output in outputs) == [False, True]
    assert sorted("one: reused" in output for output in outputs) == [False, True]
    attempts = list((tmp_path / "store" / "v1" / "stages" / "probe").glob("*/attempts/*/attempt.json"))
    assert len(attempts) == 1
