"""From the end of a process to its cause."""

from pathlib import Path

import pytest

from stages.contract import CorruptInput, StageResult
from tasks.causes import Cause, OutOfMemoryWatch, cause_of_exit, describe_exit

DONE = StageResult(outcome="done")


@pytest.mark.parametrize(
    ("returncode", "result", "out_of_memory", "cause"),
    [
        (0, DONE, False, None),
        (0, None, False, "bug"),
        (65, StageResult(outcome="user_error"), False, "user_error"),
        (70, StageResult(outcome="bug"), False, "bug"),
        (74, StageResult(outcome="storage"), False, "storage"),
        (74, StageResult(outcome="storage", corrupt=CorruptInput(stage="sft", key="ab")), False, "corrupt"),
        (75, StageResult(outcome="preempted"), False, "preempted"),
        (1, None, False, "bug"),
        (-9, None, False, "infra"),
        (-9, None, True, "oom"),
        (137, None, True, "oom"),
        (-11, None, False, "infra"),
    ],
)
def test_the_cause_of_an_end(
    returncode: int, result: StageResult | None, out_of_memory: bool, cause: Cause | None
) -> None:
    assert cause_of_exit(returncode, result, out_of_memory) == cause


def test_ends_in_words() -> None:
    assert [describe_exit(code) for code in (70, -9, 137, -200)] == [
        "exit code 70",
        "killed by SIGKILL",
        "killed by SIGKILL",
        "killed by signal 200",
    ]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("group", "counter"),
    [
        ("0::/user/job\n", "user/job/memory.events"),
        ("5:devices:/\n4:memory:/job\n0::/\n", "memory/job/memory.oom_control"),
        ("0::/\n", "vmstat"),
    ],
)
def test_kills_for_memory_are_read_from_the_group_or_from_the_machine(group: str, counter: str, tmp_path: Path) -> None:
    file = write(tmp_path / counter, "low 3\noom_kill 2\noom_group_kill 1\n")
    watch = OutOfMemoryWatch(write(tmp_path / "proc", group), tmp_path, tmp_path / "vmstat")
    assert not watch.happened()
    file.write_text("low 3\noom_kill 3\n")
    assert watch.happened()


def test_without_any_counter_no_kill_is_for_memory(tmp_path: Path) -> None:
    assert not OutOfMemoryWatch(tmp_path / "none", tmp_path, tmp_path / "none").happened()
