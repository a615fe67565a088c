import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_stages import make_lease

from stages.contract import ProgressArea, ProgressPoint, Saving
from stages.errors import StorageError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import StagePaths, attempt_name
from stages.store.memory import MemoryStore
from stages.store.progress import StoreProgress, committed_points, survey_progress

FIRST, SECOND = attempt_name(1, "aa"), attempt_name(2, "bb")


def area(store: ConditionalStore, paths: StagePaths, attempt: str) -> StoreProgress:
    return StoreProgress(store, paths, attempt, (), lambda: None)


def save(store: ConditionalStore, paths: StagePaths, attempt: str, step: int) -> None:
    """What Orbax does, in small."""
    folder = paths.attempt(attempt).progress(step)
    store.create(f"{folder}/d/array", b"weights")
    store.create(f"{folder}/metadata", b"{}")


def point(attempt: str, step: int) -> ProgressPoint:
    return ProgressPoint(attempt=attempt, step=step)


def test_a_step_exists_only_once_it_is_committed(store: ConditionalStore, paths: StagePaths) -> None:
    assert committed_points(store, paths) == []
    save(store, paths, FIRST, 10)
    assert committed_points(store, paths) == []
    area(store, paths, FIRST).commit(10)
    assert committed_points(store, paths) == [point(FIRST, 10)]


def test_the_best_point_has_the_highest_step_and_then_the_highest_epoch(
    store: ConditionalStore, paths: StagePaths
) -> None:
    for attempt, step in ((FIRST, 9), (FIRST, 10), (SECOND, 10), (SECOND, 5)):
        save(store, paths, attempt, step)
        area(store, paths, attempt).commit(step)
    assert committed_points(store, paths) == [point(SECOND, 10), point(FIRST, 10), point(FIRST, 9), point(SECOND, 5)]


def test_a_committed_step_whose_file_is_gone_or_changed_is_passed_over(
    store: ConditionalStore, paths: StagePaths
) -> None:
    for step in (1, 2):
        save(store, paths, FIRST, step)
        area(store, paths, FIRST).commit(step)
    store.delete(f"{paths.attempt(FIRST).progress(2)}/metadata")
    assert committed_points(store, paths) == [point(FIRST, 1)]
    array = f"{paths.attempt(FIRST).progress(1)}/d/array"
    stored = store.get(array)
    assert stored is not None
    store.swap(array, b"another", stored.generation)
    assert committed_points(store, paths) == []


def test_an_attempt_keeps_its_last_two_steps_and_no_other_attempts_are_touched(
    store: ConditionalStore, paths: StagePaths
) -> None:
    save(store, paths, FIRST, 1)
    area(store, paths, FIRST).commit(1)
    progress = area(store, paths, SECOND)
    for step in (2, 9, 10):
        save(store, paths, SECOND, step)
        progress.commit(step)
    assert committed_points(store, paths) == [point(SECOND, 10), point(SECOND, 9), point(FIRST, 1)]
    assert store.list(paths.attempt(SECOND).progress(2)) == []


def test_an_attempt_that_lost_the_lease_drops_nothing_that_its_successor_may_go_on_from(
    store: ConditionalStore, paths: StagePaths
) -> None:
    progress = area(store, paths, FIRST)
    for step in (1, 2, 3):
        make_lease(store, paths, 1, FIRST, "held")
        save(store, paths, FIRST, step)
        progress.commit(step)
    make_lease(store, paths, 2, SECOND, "held")
    found = committed_points(store, paths)
    for step in (4, 5):
        save(store, paths, FIRST, step)
        progress.commit(step)
    assert found == [point(FIRST, 3), point(FIRST, 2)]
    assert set(found) < set(committed_points(store, paths))


@given(
    steps=st.sets(st.integers(1, 60), min_size=1, max_size=12),
    saving=st.builds(Saving, keep_last=st.integers(1, 4), keep_every=st.none() | st.integers(1, 9)),
)
def test_an_attempt_keeps_its_newest_steps_and_the_multiples_that_were_asked_for(
    steps: set[int], saving: Saving
) -> None:
    store, paths = MemoryStore(f"memory://{uuid.uuid4().hex}"), StagePaths("sft", "ab" * 32)
    progress = StoreProgress(store, paths, FIRST, (), lambda: None, saving)
    for step in sorted(steps):
        save(store, paths, FIRST, step)
        progress.commit(step)
    newest = set(sorted(steps)[-saving.keep_last :])
    every = set() if saving.keep_every is None else {step for step in steps if step % saving.keep_every == 0}
    assert [kept.step for kept in committed_points(store, paths)] == sorted(newest | every, reverse=True)


def test_a_save_is_due_when_the_last_one_or_the_start_is_long_enough_ago(
    store: ConditionalStore, paths: StagePaths
) -> None:
    now = [100.0]
    progress = StoreProgress(store, paths, FIRST, (), lambda: None, Saving(every_seconds=60.0), lambda: now[0])
    due = []
    for now[0] in (159.0, 160.0, 170.0):
        due.append(progress.save_due())
    progress.new_uri(3)
    for now[0] in (229.0, 230.0):
        due.append(progress.save_due())
    assert due == [False, True, True, False, True]


def test_a_survey_says_why_newer_steps_do_not_count(store: ConditionalStore, paths: StagePaths) -> None:
    for attempt, step in ((FIRST, 4), (FIRST, 5), (SECOND, 9)):
        save(store, paths, attempt, step)
        if step != 9:
            area(store, paths, attempt).commit(step)
    save(store, paths, FIRST, 1)
    store.delete(f"{paths.attempt(FIRST).progress(5)}/metadata")
    survey = survey_progress(store, paths)
    assert survey.points == [point(FIRST, 4)]
    assert survey.passed_over == [
        f"step 9 of attempt {SECOND} was never committed",
        f"step 5 of attempt {FIRST} lost 1 of its 2 files, or they changed",
    ]


def test_a_survey_takes_only_the_attempts_that_count_and_reads_no_more_than_is_enough(
    store: ConditionalStore, paths: StagePaths
) -> None:
    for attempt, step in ((FIRST, 4), (FIRST, 5), (SECOND, 9)):
        save(store, paths, attempt, step)
        area(store, paths, attempt).commit(step)
    assert survey_progress(store, paths, counts=FIRST.__eq__).points == [point(FIRST, 5), point(FIRST, 4)]
    assert survey_progress(store, paths, limit=1).points == [point(SECOND, 9)]


def test_what_belongs_to_a_step_is_stored_before_its_record(store: ConditionalStore, paths: StagePaths) -> None:
    seen: list[list[ProgressPoint]] = []
    progress = StoreProgress(store, paths, FIRST, (), lambda: seen.append(committed_points(store, paths)))
    save(store, paths, FIRST, 3)
    progress.commit(3)
    assert seen == [[]]


def test_an_empty_step_cannot_be_committed(store: ConditionalStore, paths: StagePaths) -> None:
    with pytest.raises(StorageError, match="step 4 is not committed, nothing was written"):
        area(store, paths, FIRST).commit(4)


def test_a_record_whose_answer_was_lost_counts(paths: StagePaths) -> None:
    class LosesAnswer(MemoryStore):
        def create(self, path: str, data: bytes) -> str:
            generation = super().create(path, data)
            if path.endswith(".commit.json"):
                raise PreconditionFailed("asked again by the client")
            return generation

    store = LosesAnswer("memory://loses-answer")
    save(store, paths, FIRST, 3)
    area(store, paths, FIRST).commit(3)
    assert committed_points(store, paths) == [point(FIRST, 3)]


def test_an_area_offers_earlier_points_and_new_folders_of_its_own(store: ConditionalStore, paths: StagePaths) -> None:
    progress: ProgressArea = StoreProgress(store, paths, SECOND, [point(FIRST, 7)], lambda: None)
    assert list(progress.candidates()) == [point(FIRST, 7)]
    assert progress.uri(point(FIRST, 7)) == store.location(f"{paths.folder}/attempts/{FIRST}/progress/7")
    assert progress.new_uri(8) == store.location(f"{paths.folder}/attempts/{SECOND}/progress/8")
