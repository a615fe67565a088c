"""Processes that hang on a leash, and the list of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scheduled import wait_until

from flows.scheduler.engines import ask_to_stop, register, running
from flows.scheduler.leash import Leash, hang_on

HANGING = """\
import sys, time
from pathlib import Path
from flows.scheduler.engines import register
from flows.scheduler.leash import hang_on
if not hang_on(Path(sys.argv[1])):
    sys.exit("nobody holds it")
register(Path(sys.argv[2]), sys.argv[3])
print("hangs", flush=True)
time.sleep(1000)
"""
HOLDING = """\
import sys, time
from pathlib import Path
from flows.scheduler.leash import Leash
leash = Leash(Path(sys.argv[1]))
print("holds", flush=True)
time.sleep(1000)
"""


def start(code: str, *arguments: Path | str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def leash(tmp_path: Path) -> Iterator[Leash]:
    leash = Leash(tmp_path / "leash")
    yield leash
    if leash.path.exists():
        leash.release()


def test_what_hangs_on_a_leash_dies_when_it_is_released(leash: Leash, tmp_path: Path) -> None:
    processes = [start(HANGING, leash.path, tmp_path / "engines", str(n)) for n in range(2)]
    assert sorted(running(tmp_path / "engines")) == sorted(process.pid for process in processes)
    time.sleep(0.2)
    assert [process.poll() for process in processes] == [None, None]
    leash.release()
    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 2
    assert running(tmp_path / "engines") == []
    assert list((tmp_path / "engines").iterdir()) == []


def test_what_hangs_on_a_leash_dies_when_its_holder_is_killed_and_not_with_the_one_that_started_it(
    tmp_path: Path,
) -> None:
    holder = start(HOLDING, tmp_path / "leash")
    between = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]); "
        "print(child.pid, flush=True); child.wait()"
    )
    arguments = [HANGING, str(tmp_path / "leash"), str(tmp_path / "engines"), "one"]
    starter = subprocess.Popen([sys.executable, "-c", between, *arguments], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    hanging = int(starter.stdout.readline())
    assert starter.stdout.readline() == "hangs\n"
    starter.kill()
    starter.wait()
    time.sleep(0.2)
    assert running(tmp_path / "engines") == [hanging]
    holder.kill()
    holder.wait()
    wait_until(lambda: running(tmp_path / "engines") == [], 10)


def test_a_leash_that_nobody_holds_is_not_hung_on(leash: Leash, tmp_path: Path) -> None:
    assert hang_on(tmp_path / "never") is False
    holder = start(HOLDING, tmp_path / "dropped")
    holder.kill()
    holder.wait()
    assert hang_on(tmp_path / "dropped") is False


def test_those_that_run_are_asked_to_stop_and_one_that_is_gone_is_no_error(leash: Leash, tmp_path: Path) -> None:
    process = start(HANGING, leash.path, tmp_path / "engines", "one")
    gone = subprocess.Popen(["true"])
    gone.wait()
    ask_to_stop([gone.pid, process.pid])
    assert process.wait(10) == -signal.SIGTERM


def test_a_process_counts_from_its_registration_on(tmp_path: Path) -> None:
    assert running(tmp_path / "engines") == []
    register(tmp_path / "engines", "this")
    assert running(tmp_path / "engines") == [os.getpid()]
