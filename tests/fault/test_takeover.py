"""A run takes a stage from another one that works on it: two real processes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.store.conditional import open_store
from stages.store.layout import StagePaths
from stages.store.manifest import read_manifest
from stages.store.runs import list_runs, read_run

StartTemper = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., None]
WritePipeline = Callable[..., Path]


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_the_run_that_takes_over_commits_and_the_other_ones_child_is_killed(
    prefect_api: str,
    start_temper: StartTemper,
    write_pipeline: WritePipeline,
    wait_for: WaitFor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROBE_LEASE_BEAT", "0.3")
    pids = tmp_path / "pids"
    file = write_pipeline(f"  one: {{uses: probe, with: {{num_steps: 1000, step_seconds: 0.05, pids: {pids}}}}}\n")
    holder = start_temper("run", str(file))
    wait_for(pids.exists, "the holder's stage")
    loser = pids.read_text().split()
    taker = start_temper("run", str(file), "--takeover", "--set", "stages.one.with.step_seconds=0")
    held, taken = holder.communicate(timeout=60)[0], taker.communicate(timeout=60)[0]
    assert (holder.returncode, taker.returncode) == (1, 0), held + taken
    assert not any(map(is_running, loser))
    store = open_store(str(tmp_path / "store"))
    records = [read_run(store, "probes", run_id) for run_id in list_runs(store, "probes")]
    by_outcome = {record.outcome: record.stages[0] for record in records if record is not None}
    assert by_outcome["failed"].message.startswith("fenced: ")
    assert by_outcome["succeeded"].key is not None
    manifest = read_manifest(store, StagePaths("probe", by_outcome["succeeded"].key))
    assert manifest is not None
    assert manifest.epoch == 2
