from collections.abc import Callable
from datetime import UTC, datetime

from stages.store.attempts import AttemptRecord, attempt_names, read_attempt, write_attempt
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.holder import this_holder
from stages.store.layout import StagePaths, attempt_name
from stages.store.memory import MemoryStore
from stages.store.runs import (
    RunRecord,
    RunStage,
    is_run_id,
    latest_run,
    list_runs,
    new_run_id,
    read_run,
    write_plan,
    write_run,
)
from stages.store.salts import read_salt, write_salt

KEY = "ab" * 32


class LosesAnswers(MemoryStore):
    """Every write takes effect and is refused when the client asks again."""

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        super().__init__("memory://loses-answers")
        self.between = between

    def create(self, path: str, data: bytes) -> str:
        super().create(path, data)
        raise PreconditionFailed("asked again")

    def swap(self, path: str, data: bytes, generation: str) -> str:
        super().swap(path, data, generation)
        raise PreconditionFailed("asked again")


def run(run_id: str, outcome: str = "running") -> RunRecord:
    stage = RunStage(id="sft", kind="sft", key=KEY, outcome="resumed", seconds=1.5)
    record = {"run_id": run_id, "pipeline": "smoke", "profile": None, "argv": (), "started": "now", "outcome": outcome}
    return RunRecord.model_validate(record | {"stages": (stage,)})


def test_a_run_is_archived_with_its_plan_and_replaced_while_it_goes_on(store: ConditionalStore) -> None:
    run_id = new_run_id()
    write_plan(store, "smoke", run_id, b"{}")
    assert list_runs(store, "smoke") == []
    write_run(store, run(run_id))
    write_run(store, run(run_id, "succeeded"))
    assert read_run(store, "smoke", run_id) == run(run_id, "succeeded")
    paths = [listed.path for listed in store.list("v1/runs")]
    assert paths == [f"v1/runs/smoke/{run_id[:4]}/{run_id}/{name}.json" for name in ("plan", "run")]


def test_an_id_of_a_run_is_told_from_other_names() -> None:
    assert is_run_id(new_run_id())
    assert is_run_id("20260101T000000Z-aaaaaaaa"), "runs that were recorded without milliseconds stay runs"
    assert not any(is_run_id(name) for name in ("latest", "prod", "0123456789abcdef", "20260101T000000Z"))


def test_runs_that_start_within_one_second_sort_by_time() -> None:
    moments = [datetime(2026, 1, 2, microsecond=microsecond, tzinfo=UTC) for microsecond in range(0, 900_000, 30_000)]
    ids = [new_run_id(moment) for moment in moments]
    assert sorted(ids) == ids


def test_the_latest_run_is_the_one_that_started_last(store: ConditionalStore) -> None:
    assert latest_run(store, "smoke") is None
    ids = [new_run_id(datetime(year, 1, 2, tzinfo=UTC)) for year in (2027, 2026, 2025)]
    for run_id in ids:
        write_run(store, run(run_id))
    assert list_runs(store, "smoke") == sorted(ids)
    assert latest_run(store, "smoke") == run(ids[0])
    assert latest_run(store, "smok") is None


def test_a_salt_is_new_each_time_and_the_last_one_stands(store: ConditionalStore) -> None:
    assert read_salt(store, KEY) is None
    first = write_salt(store, KEY)
    second = write_salt(store, KEY)
    assert first != second
    assert read_salt(store, KEY) == second


def test_a_salt_whose_answer_was_lost_is_the_one_that_stands() -> None:
    store = LosesAnswers()
    for _ in range(2):
        assert write_salt(store, KEY) == read_salt(store, KEY)


def test_an_attempts_record_is_replaced_by_how_it_ended(store: ConditionalStore, paths: StagePaths) -> None:
    for epoch in (2, 1):
        attempt = attempt_name(epoch, "aa")
        assert read_attempt(store, paths, attempt) is None
        running = AttemptRecord(attempt=attempt, holder=this_holder(), started="2026-01-01T00:00:00+00:00")
        write_attempt(store, paths, running)
        ended = running.model_copy(update={"outcome": "failed", "cause": "oom", "last_step": 7})
        write_attempt(store, paths, ended)
        write_attempt(store, paths, ended)
        assert read_attempt(store, paths, attempt) == ended
    assert attempt_names(store, paths) == [attempt_name(1, "aa"), attempt_name(2, "aa")]


def test_an_attempts_record_of_an_older_version_is_read(store: ConditionalStore, paths: StagePaths) -> None:
    attempt = attempt_name(1, "aa")
    older = AttemptRecord(attempt=attempt, holder=this_holder(), started="2026-01-01T00:00:00+00:00")
    stored = older.model_dump_json(exclude={"ended", "provenance"}).encode()
    store.create(paths.attempt(attempt).record, stored)
    assert read_attempt(store, paths, attempt) == older


def test_a_record_whose_answers_were_lost_is_written(paths: StagePaths) -> None:
    store = LosesAnswers()
    for outcome in ("running", "succeeded"):
        write_run(store, run("20260101T000000Z-aa", outcome))
        assert latest_run(store, "smoke") == run("20260101T000000Z-aa", outcome)
