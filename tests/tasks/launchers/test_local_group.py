"""Several real processes of one stage, watched as one."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from temper_probe import ProbeConfig

from stages.contract import Beat, StageRequest
from stages.errors import LeaseLostError
from stages.store.conditional import ConditionalStore
from tasks.launchers import local_group
from tasks.launchers.launcher import Launch
from tasks.launchers.local import group_runs
from tasks.launchers.local_group import LocalGroup
from tasks.lost_lease import LostLease
from tasks.stopping import StopSignal
from tasks.supervise import BeatWatch, Deadlines, Ending, supervise

PATIENT = Deadlines(total=120.0, stall=120.0, grace=10.0)
NOTHING_SAVED = {"save_every_steps": 9}
"""The probe knows nothing of others that save to the same folder."""


class Watched:
    """A group and what it showed so far."""

    def __init__(self, request: StageRequest, python: str) -> None:
        self.lines: list[str] = []
        self.beats: list[Beat] = []
        self.begun = threading.Event()
        self.watch = BeatWatch(self._keep)
        self.group = LocalGroup(
            Launch(request, python, "cpu", on_line=self.lines.append, on_beat=self.watch, num_processes=2)
        )
        self.members = self.group._members

    def _keep(self, beat: Beat) -> None:
        self.beats.append(beat)
        self.begun.set()

    def ending(self, lost: LostLease | None = None) -> Ending:
        return supervise(self.group, self.watch, PATIENT, StopSignal(), lost or LostLease())

    def runs(self) -> bool:
        return any(group_runs(member.pid) for member in self.members)


StartGroup = Callable[..., Watched]


@pytest.fixture
def start_group(
    tmp_path: Path, probe_python: str, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StartGroup]:
    """Starts two processes of a probe, or of another kind with settings as JSON."""
    monkeypatch.setattr(local_group, "OTHERS_SECONDS", 1.0)
    started: list[Watched] = []

    def start(kind: str = "probe", settings: str = "", **config: object) -> Watched:
        request = StageRequest(
            stage_id=kind,
            kind=kind,
            version=1,
            key="ab" * 32,
            config=settings or ProbeConfig.model_validate(NOTHING_SAVED | config).model_dump_json(),
            inputs={},
            store=store.uri,
            attempt="000001-test",
            epoch=1,
            resume=(),
            scratch=str(tmp_path / "scratch"),
            cache=str(tmp_path / "cache"),
        )
        started.append(Watched(request, probe_python))
        return started[-1]

    yield start
    for watched in started:
        watched.group.close()


def test_two_processes_end_as_one_stage_whose_first_process_speaks_for_it(start_group: StartGroup) -> None:
    watched = start_group()
    ending = watched.ending()
    assert ending.cause is None, ending.message
    assert ending.result is not None
    assert [file.path for file in ending.result.outputs["report"]] == ["artifact.json", "rows.json"]
    assert [beat.step for beat in watched.beats] == [1, 2, 3]
    assert {"start after step 0", "[1] start after step 0"} <= set(watched.lines)


@pytest.mark.parametrize("member", [0, 1])
def test_a_killed_process_stops_the_other_and_the_end_is_its_own(start_group: StartGroup, member: int) -> None:
    watched = start_group(fault="hang")
    assert watched.begun.wait(60)
    os.kill(watched.members[member].pid, signal.SIGKILL)
    ending = watched.ending()
    assert (ending.cause, ending.message) == ("infra", f"process {member} of 2: killed by SIGKILL")
    assert not watched.runs()


def test_a_process_that_does_not_heed_the_end_of_another_is_killed(start_group: StartGroup) -> None:
    watched = start_group(fault="native_hang")
    assert watched.begun.wait(60)
    watched.members[1].kill()
    started = time.monotonic()
    assert watched.ending().message == "process 1 of 2: killed by SIGKILL"
    assert time.monotonic() - started < 5
    assert not watched.runs()


def test_an_error_of_the_stage_is_told_once_with_its_process(start_group: StartGroup) -> None:
    ending = start_group(fault="user_error").ending()
    assert ending.cause == "user_error"
    assert ending.message in {"process 0 of 2: bad data", "process 1 of 2: bad data"}


def test_all_processes_are_killed_when_the_lease_is_lost(start_group: StartGroup) -> None:
    watched = start_group(fault="hang")
    assert watched.begun.wait(60)
    lost = LostLease()
    lost.set(LeaseLostError("attempt 2 has it"))
    assert watched.ending(lost).cause == "fenced"
    assert not watched.runs()


def test_each_process_ends_with_the_supervisor(start_group: StartGroup) -> None:
    watched = start_group(fault="native_hang")
    assert watched.begun.wait(60)
    for member in watched.members:
        assert member._process.stdin is not None
        member._process.stdin.close()
    deadline = time.monotonic() + 5
    while watched.runs():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_kind_that_runs_in_one_process_says_so(start_group: StartGroup) -> None:
    settings = '{"source": "reasoning_gym://chain_sum", "num_train": 1, "num_held_out": 1, "seed": 0}'
    ending = start_group("prepare", settings).ending()
    assert ending.cause == "user_error"
    assert ending.message.endswith("prepare runs in one process, not in 2")
