"""What became of the attempts at a stage."""

from pathlib import Path

import pytest

from stages.store.attempts import attempt_names, read_attempt
from tasks.execute_stage import execute_stage
from tasks.observer import StageObserver
from tasks.stage_work import StageFailedError, StageWork


def outcomes(work: StageWork) -> list[tuple[str, str]]:
    names = attempt_names(work.store, work.paths)
    records = [read_attempt(work.store, work.paths, name) for name in names]
    return [(record.outcome, record.cause) for record in records if record is not None]


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def failures(work: StageWork, witness: StageObserver, num: int) -> list[StageFailedError]:
    """The errors of `num` attempts in a row."""
    errors: list[StageFailedError] = []
    for _ in range(num):
        with pytest.raises(StageFailedError) as caught:
            execute_stage(work, witness)
        errors.append(caught.value)
    return errors
