"""When attempts that fail at one place are too many."""

from datetime import UTC, datetime, timedelta

from stages.contract import ProgressPoint
from stages.store.attempts import AttemptRecord, Outcome
from stages.store.holder import this_holder
from tasks.crash_loop import describe_loop, failures_in_place, point_to_leave_out

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
TEN, FIVE = ProgressPoint(attempt="000001-a", step=10), ProgressPoint(attempt="000001-a", step=5)


def record(
    last_step: int | None = 12,
    cause: str = "infra",
    outcome: Outcome = "failed",
    hours_ago: float = 0.0,
    hours: float | None = None,
    lowered: dict[str, int] | None = None,
    resumed_from: ProgressPoint | None = TEN,
    left_out: ProgressPoint | None = None,
) -> AttemptRecord:
    return AttemptRecord(
        attempt="000001-a",
        holder=this_holder(),
        started=(NOW - timedelta(hours=hours_ago + (hours or 0.0))).isoformat(),
        ended="" if hours is None else (NOW - timedelta(hours=hours_ago)).isoformat(),
        outcome=outcome,
        cause=cause,
        last_step=last_step,
        lowered=lowered or {},
        resumed_from=resumed_from,
        left_out=left_out,
    )


def count(*history: AttemptRecord) -> int:
    return len(failures_in_place(history, NOW))


def test_failures_at_one_step_count_up_to_one_at_another() -> None:
    assert count(record(12), record(12), record(12)) == 3
    assert count(record(12), record(11), record(12)) == 1
    assert count(record(None, "stalled"), record(None, "timeout"), record(12)) == 2
    assert count() == 0


def test_a_success_an_error_of_the_user_or_a_store_that_failed_ends_the_row() -> None:
    assert count(record(), record(outcome="committed", cause=""), record()) == 1
    for cause in ("user_error", "bug", "storage"):
        assert count(record(), record(cause=cause), record()) == 1


def test_preempted_and_unfinished_attempts_say_nothing() -> None:
    outcomes: tuple[Outcome, ...] = ("preempted", "running", "fenced")
    for outcome in outcomes:
        assert count(record(), record(7, outcome=outcome), record()) == 2


def test_what_failed_days_ago_or_with_other_settings_does_not_count() -> None:
    assert count(record(), record(hours_ago=23), record(hours_ago=25), record()) == 2
    assert count(record(cause="oom", lowered={"width": 4}), record(cause="oom", lowered={"width": 8})) == 1


def test_the_time_of_the_attempts_themselves_does_not_count_towards_the_day() -> None:
    days = [record(70, "stalled", hours_ago=25.0 * number, hours=25) for number in range(5)]
    assert count(*days) == 5
    days[1] = days[1].model_copy(update={"outcome": "preempted", "cause": "preempted"})
    assert count(*days) == 4
    assert count(*(record(70, "stalled", hours_ago=37.0 * number, hours=25) for number in range(5))) == 3
    assert count(record(70, "stalled", hours_ago=25, hours=1)) == 0


def test_the_newest_saved_step_is_left_out_once_before_the_last_failure_that_is_allowed() -> None:
    assert point_to_leave_out([record()], TEN) is None
    assert point_to_leave_out([record(), record()], TEN) == TEN
    assert point_to_leave_out([record(), record()], None) is None
    assert point_to_leave_out([record(resumed_from=FIVE), record()], TEN) is None
    assert point_to_leave_out([record(), record(), record(left_out=FIVE)], TEN) is None


def test_three_failures_end_it_with_what_was_tried() -> None:
    assert describe_loop([record(), record()]) is None
    told = describe_loop([record(left_out=TEN), record(), record()])
    assert told is not None
    assert told.startswith("3 attempts in a row failed after step 12, one of them without the saved step 10, so")
    told = describe_loop([record(None), record(None), record(None)])
    assert told is not None
    assert told.startswith("3 attempts in a row failed before its first step was done, so")
