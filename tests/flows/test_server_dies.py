"""A run whose server is killed meanwhile."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.server import OwnServer
from flows.server_home import claim_numbered_home
from stages.store.conditional import open_store
from stages.store.runs import latest_run

WritePipeline = Callable[..., Path]
PROBE_TEMPER = Path(__file__).parents[1] / "probe" / "probe_temper.py"

pytestmark = pytest.mark.slow


def test_a_run_goes_on_to_its_end_and_says_that_its_server_is_gone(
    write_pipeline: WritePipeline, own_places: None, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    file = write_pipeline(
        f"  one: {{uses: probe, with: {{num_steps: 20, step_seconds: 0.25, pids: {pids}}}}}\n"
        "  two: {uses: probe_consumer, inputs: {report: '${stages.one.outputs.report}'}, with: {}}\n"
    )
    server = OwnServer(claim_numbered_home(tmp_path / "prefect"))
    server.wait_until_ready()
    environment = {**os.environ, "PREFECT_API_URL": server.address, "PREFECT_CLIENT_MAX_RETRIES": "0"}
    command = [sys.executable, PROBE_TEMPER, "run", file]
    run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not pids.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(server._process.pid, signal.SIGKILL)
    _, told = run.communicate(timeout=200)
    assert run.returncode == 1
    assert f"what became of the run is in the store: temper status {file}" in told
    record = latest_run(open_store(str(tmp_path / "store")), "probes")
    assert record is not None
    assert (record.outcome, [stage.outcome for stage in record.stages]) == ("succeeded", ["done", "done"])
    server.stop()
