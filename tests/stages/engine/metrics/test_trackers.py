"""Rows as TensorBoard, W&B's files and a real MLflow server have them, after a kill and a second attempt too."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from stages.engine.metrics.following import Follower, Followers
from stages.engine.metrics.tracked_run import RunOutcome, TrackedRun
from stages.trackers import MlflowTracker, TensorboardTracker, Tracker, WandbTracker

ROOT = Path(__file__).parents[4]
PYTHON = ROOT / ".venv-trackers" / "bin" / "python"
KEY = "cd" * 32
START_SECONDS = 150.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test-slow` makes .venv-trackers"),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These packages take long to be imported on a machine that has other things to do."""
    monkeypatch.setattr("stages.engine.metrics.following.CLOSE_SECONDS", START_SECONDS)


def attempt(tracker: Tracker, number: int, steps: range, outcome: RunOutcome | None, folder: Path) -> None:
    """One attempt at the same stage; without an outcome its process is killed after its rows."""
    run = TrackedRun(
        tracker=tracker,
        pipeline="weekly",
        stage="sft",
        kind="sft",
        key=KEY,
        attempt=f"{number:06d}-x",
        config='{"num_steps": 4, "optimizer": {"learning_rate": 0.001}}',
    )
    follower = Follower(run, folder, python=str(PYTHON))
    for step in steps:
        follower.add(step, {"loss/nll": 1 / step, "optimizer/grad_norm": float(step)})
    if outcome is not None:
        Followers([follower]).close(outcome)
        return
    follower.wait(time.monotonic() + 60)


def ask(program: str, *arguments: str) -> dict[str, list[float]]:
    """What a program in the environment of trackers prints as JSON."""
    ended = subprocess.run([str(PYTHON), "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


READ_EVENTS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps({name: [[e.step, e.value] for e in found.Scalars(name)] for name in found.Tags()["scalars"]}))
"""


def test_tensorboard_reads_both_attempts_as_one_curve(tmp_path: Path) -> None:
    tracker = TensorboardTracker(folder=str(tmp_path / "curves"))
    attempt(tracker, 1, range(1, 4), None, tmp_path)
    attempt(tracker, 2, range(3, 5), "done", tmp_path)
    curves = ask(READ_EVENTS, str(tmp_path / "curves" / "weekly" / f"sft-{KEY[:8]}"))
    assert curves["loss/nll"] == [[1, 1.0], [2, 0.5], [3, pytest.approx(1 / 3)], [4, 0.25]]
    assert curves["optimizer/grad_norm"] == [[1, 1.0], [2, 2.0], [3, 3.0], [4, 4.0]]


READ_WANDB = """
import json, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2
data = Path(sys.argv[1]).read_bytes()[7:]  # what follows the header is LevelDB's log format; one block is enough here
found = {"rows": [], "run": [], "settings": []}
while len(data) > 7:
    length, kind = int.from_bytes(data[4:6], "little"), data[6]
    assert kind == 1, "whole records"
    record = wandb_internal_pb2.Record.FromString(data[7 : 7 + length])
    data = data[7 + length :]
    kind = record.WhichOneof("record_type")
    if kind == "history":
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        found["rows"].append([row["_step"], row["loss/nll"]])
    if kind == "run":
        found["run"] = [record.run.run_id, record.run.run_group, record.run.display_name, record.run.project]
        found["settings"] = [item.key for item in record.run.config.update]
print(json.dumps(found))
"""


def test_wandb_keeps_a_run_offline(tmp_path: Path) -> None:
    tracker = WandbTracker(project="temper", mode="offline", folder=str(tmp_path / "runs"))
    attempt(tracker, 1, range(1, 4), "done", tmp_path)
    (file,) = (tmp_path / "runs").glob(f"wandb/offline-run-*/run-{KEY[:32]}.wandb")
    found = ask(READ_WANDB, str(file))
    assert found["rows"] == [[1, 1.0], [2, 0.5], [3, pytest.approx(1 / 3)]]
    assert found["run"] == [KEY[:32], "weekly", "sft", "temper"]
    assert {"num_steps", "optimizer"} <= set(map(str, found["settings"]))


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    """The address of an MLflow server on loopback, with a database below the test's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store, log = f"sqlite:///{tmp_path / 'mlflow.db'}", (tmp_path / "server.log").open("wb")
    command = [str(PYTHON), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(tmp_path / "artifacts")]
    # Its runner of jobs would leave processes of their own groups behind.
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while not _answers(f"{address}/health"):
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)
        log.close()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except (URLError, OSError):
        return False


READ_MLFLOW = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("temper").experiment_id
runs = client.search_runs([experiment])
(run,) = runs
rows = [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, "loss/nll")]
print(json.dumps({"rows": rows, "run": [run.info.run_name, run.info.status], "params": run.data.params}))
"""


def test_an_mlflow_server_has_both_attempts_in_one_run(tmp_path: Path, mlflow_server: str) -> None:
    tracker = MlflowTracker(uri=mlflow_server, experiment="temper")
    attempt(tracker, 1, range(1, 3), "stopped", tmp_path)
    first = ask(READ_MLFLOW, mlflow_server)
    assert first["run"] == ["sft", "KILLED"]
    attempt(tracker, 2, range(3, 5), "done", tmp_path)
    found: Mapping[str, object] = ask(READ_MLFLOW, mlflow_server)
    assert found["rows"] == [[1, 1.0], [2, 0.5], [3, pytest.approx(1 / 3)], [4, 0.25]]
    assert found["run"] == ["sft", "FINISHED"]
    assert found["params"] == {"num_steps": "4", "optimizer.learning_rate": "0.001"}


def test_a_server_that_is_not_there_costs_a_stage_no_more_than_the_wait_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.engine.metrics.following.CLOSE_SECONDS", 3.0)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()  # it takes connections, and never answers
        started = time.monotonic()
        tracker = MlflowTracker(uri=f"http://127.0.0.1:{deaf.getsockname()[1]}", experiment="temper")
        attempt(tracker, 1, range(1, 100), "done", tmp_path)
    assert time.monotonic() - started < 10
    assert [record.getMessage() for record in caplog.records] == [
        "tracker mlflow was not done 3 s after the stage; all metrics are in the store"
    ]
