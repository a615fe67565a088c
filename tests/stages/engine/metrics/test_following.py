"""Trackers in processes of their own: what a stage notices of one that works, is missing, ends early or hangs."""

import logging
import stat
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from stages.engine.metrics import following as module
from stages.engine.metrics.following import Follower, Followers, following
from stages.engine.metrics.tracked_run import TrackedRun
from stages.errors import PreemptedError
from stages.trackers import TensorboardTracker, Tracker, WandbTracker

MakePython = Callable[[str], str]


def run_of(tracker: Tracker) -> TrackedRun:
    return TrackedRun(
        tracker=tracker, pipeline="p", stage="sft", kind="sft", key="ab" * 32, attempt="000001-x", config='{"a": 1}'
    )


@pytest.fixture
def make_python(tmp_path: Path) -> MakePython:
    """An interpreter that is a shell script."""

    def make(script: str) -> str:
        file = tmp_path / "python"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    return make


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.3)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_rows_arrive_and_all_trackers_end_with_the_stage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runs = [run_of(TensorboardTracker(folder=str(tmp_path / name))) for name in ("one", "two")]
    with following(runs, tmp_path / "scratch") as followers:
        for step in range(1, 4):
            followers.add(step, {"loss/nll": 1 / step})
    files = [tmp_path / name / "p" / "sft-abababab" / "events.out.tfevents.000001-x" for name in ("one", "two")]
    assert all(file.read_bytes().count(b"loss/nll") == 3 for file in files)
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "done"), (PreemptedError("x"), "stopped"), (KeyError("x"), "failed")]
)
def test_a_tracker_is_told_how_the_attempt_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, outcome: str
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Followers, "close", lambda _self, how: told.append(how))
    with nullcontext() if error is None else pytest.raises(type(error)), following([], tmp_path):
        if error is not None:
            raise error
    assert told == [outcome]


def test_a_tracker_whose_package_is_missing_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make_python: MakePython
) -> None:
    program = f"import sys; sys.modules['wandb'] = None; from {module.PROGRAM} import main; sys.exit(main())"
    python = make_python(f'exec {sys.executable} -c "{program}"')
    follower = Follower(run_of(WandbTracker(project="p")), tmp_path, python=python)
    follower.add(1, {"a": 1.0})
    follower.finish("done")
    follower.wait(time.monotonic() + 20)
    (warning,) = warnings(caplog)
    assert "tracker wandb has ended: the package wandb is not installed; the extra `trackers` brings it" in warning


def test_a_tracker_that_ends_early_is_one_warning_with_its_last_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make_python: MakePython
) -> None:
    python = make_python("echo 'no such server' >&2; exit 3")
    follower = Follower(run_of(WandbTracker(project="p")), tmp_path, python=python)
    deadline = time.monotonic() + 10
    while not warnings(caplog) and time.monotonic() < deadline:
        follower.add(1, {"a": 1.0})
        time.sleep(0.01)
    follower.finish("done")
    follower.wait(time.monotonic() + 5)
    assert warnings(caplog) == ["tracker wandb has ended: no such server; all metrics are in the store"]


def test_a_tracker_that_cannot_be_started_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(run_of(WandbTracker(project="p")), tmp_path, python=str(tmp_path / "nothing"))
    follower.add(1, {"a": 1.0})
    follower.finish("done")
    follower.wait(time.monotonic())
    (warning,) = warnings(caplog)
    assert warning.startswith("tracker wandb cannot be started: ")


def test_a_tracker_that_hangs_costs_no_time_until_the_end_and_then_a_bounded_one(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make_python: MakePython,
    short_wait: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 2**18)
    follower = Follower(run_of(WandbTracker(project="p")), tmp_path, python=make_python("exec sleep 1000"))
    followers = Followers([follower])
    started = time.monotonic()
    for step in range(20_000):  # a pipe holds far less
        followers.add(step, {"a": 1.0})
    followers.close("done")
    assert time.monotonic() - started < 10
    assert follower._process is not None
    assert follower._process.returncode is not None, "it is gone"
    assert warnings(caplog) == ["tracker wandb does not keep up; all metrics are in the store"]
