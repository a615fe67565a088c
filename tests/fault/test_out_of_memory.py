"""A real kill by the kernel for want of memory, in a control group of the test's own."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.contract import StageRequest

MOUNT = Path("/sys/fs/cgroup")
LIMIT_BYTES = 600 << 20

SUPERVISE = """\
import os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from stages.contract import StageRequest
from tasks.launchers.launcher import Launch
from tasks.launchers.local import LocalChild
from tasks.lost_lease import LostLease
from tasks.stopping import StopSignal
from tasks.supervise import BeatWatch, Deadlines, supervise
request = StageRequest.model_validate_json(Path(sys.argv[2]).read_text())
beats = BeatWatch(lambda beat: None)
child = LocalChild(Launch(request, sys.argv[3], "cpu", on_line=print, on_beat=beats))
print(supervise(child, beats, Deadlines(60, 60, 1), StopSignal(), LostLease()).cause)
"""


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A control group with little memory, of whichever version this machine lets us make."""
    parent, limit = (
        (MOUNT / "memory", "memory.limit_in_bytes") if (MOUNT / "memory").is_dir() else (MOUNT, "memory.max")
    )
    group = parent / f"temper-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    group.rmdir()


def test_a_stage_that_the_kernel_killed_for_its_memory_ends_as_oom(
    limited_group: Path, tmp_path: Path, probe_python: str
) -> None:
    request = StageRequest(
        stage_id="probe",
        kind="probe",
        version=1,
        key="ab" * 32,
        config='{"fault": "eat_memory"}',
        inputs={},
        store=str(tmp_path / "store"),
        attempt="000001-a",
        epoch=1,
        resume=(),
        scratch=str(tmp_path / "scratch"),
        cache=str(tmp_path / "cache"),
    )
    file = tmp_path / "given.json"
    file.write_text(request.model_dump_json())
    command = [sys.executable, "-c", SUPERVISE, str(limited_group), str(file), probe_python]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ))
    assert ended.stdout.splitlines()[-1] == "oom", ended.stdout + ended.stderr
