"""What an attempt starts from, by what earlier ones left in the store."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.spec.nodes import Resume, Retry
from stages.contract import ProgressPoint
from stages.store.attempts import AttemptRecord, write_attempt
from stages.store.holder import this_holder
from stages.store.layout import attempt_name
from stages.store.progress import StoreProgress
from tasks.attempt_start import find_start
from tasks.stage_work import StageWork

MakeWork = Callable[..., StageWork]

ONE, TWO = attempt_name(1, "a"), attempt_name(2, "b")


def failed(work: StageWork, attempt: str, *steps: int, run_id: str = "run-1", **fields: object) -> None:
    """An attempt that saved `steps` and then was killed."""
    record = {"outcome": "failed", "cause": "infra", "started": datetime.now(UTC).isoformat(), "run_id": run_id}
    record |= {"attempt": attempt, "holder": this_holder(), **fields}
    write_attempt(work.store, work.paths, AttemptRecord.model_validate(record))
    progress = StoreProgress(work.store, work.paths, attempt, (), lambda: None)
    for step in steps:
        Path(progress.new_uri(step)).mkdir(parents=True)
        (Path(progress.new_uri(step)) / "state").write_text("state")
        progress.commit(step)


def points(work: StageWork) -> list[tuple[str, int]]:
    return [(point.attempt, point.step) for point in find_start(work).points]


@pytest.mark.parametrize(
    ("policy", "expected"), [("eager", [(ONE, 9), (ONE, 8), (TWO, 5)]), ("fresh", [(TWO, 5)]), ("none", [])]
)
def test_the_policy_says_whose_saved_steps_count(
    make_work: MakeWork, policy: str, expected: list[tuple[str, int]]
) -> None:
    work = make_work(changes={"resume": Resume(policy=policy)})  # type: ignore[arg-type]
    assert points(work) == []
    failed(work, ONE, 8, 9, run_id="run-0")
    failed(work, TWO, 5)
    assert points(work) == expected


def test_a_newer_step_that_does_not_count_is_told(make_work: MakeWork) -> None:
    work = make_work()
    failed(work, ONE, 8, 9)
    state = f"{work.paths.attempt(ONE).progress(9)}/state"
    work.store.delete(state)
    start = find_start(work)
    assert [point.step for point in start.points] == [8]
    assert start.notes == (f"step 9 of attempt {ONE} lost 1 of its 1 files, or they changed; going on without it",)


def test_the_newest_step_is_left_out_when_two_attempts_failed_at_one_place(make_work: MakeWork) -> None:
    work = make_work()
    failed(work, ONE, 8, 9, last_step=11)
    newest = ProgressPoint(attempt=ONE, step=9)
    failed(work, TWO, last_step=11, resumed_from=newest)
    start = find_start(work)
    assert (start.left_out, [point.step for point in start.points]) == (newest, [8])
    assert start.notes == ("leaving out the saved step 9: attempts that went on from it failed at one place",)


def test_settings_are_lowered_after_a_want_of_memory(make_work: MakeWork) -> None:
    retry = Retry(max=3, delay=(0.0,), jitter=0.0, on=("oom",), preempted_max=0, on_oom={"width": 2})
    work = make_work(changes={"retry": retry})
    failed(work, ONE, cause="oom")
    start = find_start(work)
    assert (start.lowered, start.notes) == ({"width": 4}, ("lowered for want of memory: width 4",))
