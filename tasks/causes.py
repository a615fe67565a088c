"""Why a stage's process did not finish its work, told from how it ended."""

import signal
from pathlib import Path
from typing import Literal

from stages.contract import StageResult

Cause = Literal[
    "user_error",
    "bug",
    "storage",
    "preempted",
    "oom",
    "infra",
    "stalled",
    "timeout",
    "fenced",
    "conflict",
    "corrupt",
    "stopped",
]
"""The words of `retry.on`, and those that are never retried: `user_error`, `bug`, `fenced`, `conflict` (another run
works on the stage), `corrupt` (an input must be made again first) and `stopped` (by the user)."""

EXIT_CAUSES: dict[int, Cause] = {65: "user_error", 70: "bug", 71: "oom", 74: "storage", 75: "preempted"}


def cause_of_exit(returncode: int, result: StageResult | None, out_of_memory: bool) -> Cause | None:
    """The cause of an end that nobody asked for; None means that the work is done.

    Args:
        returncode: as `subprocess` gives it, negative for a signal; 128 + n counts as signal n.
        result: what the process left behind, if it did.
        out_of_memory: whether the kernel killed something in this control group meanwhile.
    """
    if result is not None and result.corrupt is not None:
        return "corrupt"
    if returncode == 0:
        return None if result is not None and result.outcome == "done" else "bug"
    if returncode < 0 or returncode > 128:
        return "oom" if out_of_memory else "infra"
    return EXIT_CAUSES.get(returncode, "bug")


def describe_exit(returncode: int) -> str:
    """The end in words, for example `exit code 70` or `killed by SIGKILL`."""
    number = -returncode if returncode < 0 else returncode - 128
    if returncode < 0 or returncode > 128:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit code {returncode}"


class OutOfMemoryWatch:
    """Notices kills by the kernel for want of memory.

    The counters are those of this process's control group, or of the whole machine where the group has none.
    """

    def __init__(
        self,
        proc: Path = Path("/proc/self/cgroup"),
        mount: Path = Path("/sys/fs/cgroup"),
        machine: Path = Path("/proc/vmstat"),
    ) -> None:
        self._counters = _counter_files(proc, mount) or [machine]
        self._before = self._count()

    def happened(self) -> bool:
        """Whether there was such a kill since this watch was made."""
        return self._count() > self._before

    def _count(self) -> int:
        return sum(_kills(file) for file in self._counters)


def _counter_files(proc: Path, mount: Path) -> list[Path]:
    """`memory.events` of version 2 and `memory.oom_control` of version 1, as far as they exist."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group = path.lstrip("/")
        if controllers == "":
            files.append(mount / group / "memory.events")
        elif "memory" in controllers.split(","):
            files += [mount / "memory" / group / "memory.oom_control", mount / "memory" / "memory.oom_control"]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _kills(file: Path) -> int:
    try:
        text = file.read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))
