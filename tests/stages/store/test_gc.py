import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_stages import commit, make_attempt, make_lease, make_progress, make_spec, paths_of

from stages.errors import UserError
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.approvals import Approval, write_approval
from stages.store.conditional import ConditionalStore, StoredObject
from stages.store.gc import Collected, collect
from stages.store.gc_plan import DAY, Retention, find_garbage
from stages.store.holder import this_holder
from stages.store.layout import MARKER, StagePaths
from stages.store.local import ASIDE_FOLDER, LocalStore
from stages.store.manifest import (
    Manifest,
    Swept,
    check_files,
    claim_manifest,
    quarantine,
    read_manifest,
    read_manifest_file,
)
from stages.store.marker import ensure_marker
from stages.store.memory import MemoryStore
from stages.store.progress import ProgressCommit, ProgressFile, committed_points
from stages.store.records import write_record
from stages.store.runs import RunRecord, RunStage, write_run

NOW_OR_NEVER = Retention(grace=0, runs=0)


def run_gc(store: ConditionalStore, days: float = 0.0, retention: Retention | None = None) -> Collected:
    """As it would be `days` from now."""
    ensure_marker(store)
    garbage = find_garbage(store, retention or Retention(), this_holder(), time.time() + days * DAY)
    return collect(store, garbage)


def state(store: ConditionalStore, paths: StagePaths) -> str:
    found = read_manifest_file(store, paths)
    return found.content.state if found else "absent"


def point(store: ConditionalStore, name: str, paths: StagePaths, previous: str | None = None) -> None:
    target = AliasTarget(stage=paths.kind, key=paths.key, output="checkpoint", manifest_generation="1")
    record = AliasRecord(name=name, checkpoint=target, previous=previous, set_by="me", set_at="now")
    set_alias(store, record, None)


def record_run(store: ConditionalStore, *stages: StagePaths, finished: str | None = "then") -> None:
    rows = tuple(RunStage(id=f"s{n}", kind=paths.kind, key=paths.key) for n, paths in enumerate(stages))
    fields = {"run_id": "20260101T000000Z-1", "pipeline": "weekly", "profile": None, "argv": (), "started": ""}
    write_run(store, RunRecord.model_validate({**fields, "finished": finished, "stages": rows}))


def test_a_result_that_nothing_needs_is_condemned_then_swept_and_its_small_records_stay(
    store: ConditionalStore,
) -> None:
    paths = paths_of("a")
    manifest = commit(store, paths, steps=[5])
    assert run_gc(store, 1).condemned == 1
    assert state(store, paths) == "condemned"
    assert read_manifest(store, paths) == manifest
    assert check_files(store, manifest) == []
    assert run_gc(store, 6).objects == 0
    done = run_gc(store, 9)
    assert state(store, paths) == "swept"
    assert (done.objects, store.list(paths.attempts)) == (5, [])
    assert {listed.path for listed in store.list(paths.folder)} == {paths.manifest, paths.spec, paths.lease}
    assert run_gc(store, 30) == Collected()


def test_a_hit_during_the_grace_rescues_what_was_condemned(store: ConditionalStore) -> None:
    paths = paths_of("a")
    manifest = commit(store, paths)
    run_gc(store, 1)
    assert claim_manifest(store, paths) == manifest
    run_gc(store, 9)
    assert state(store, paths) == "condemned"
    assert check_files(store, manifest) == []


def test_what_is_needed_again_is_no_longer_condemned(store: ConditionalStore) -> None:
    below, above = paths_of("below"), paths_of("above")
    commit(store, above)
    commit(store, below, [above])
    run_gc(store, 1)
    point(store, "prod", below)
    run_gc(store, 9)
    assert (state(store, below), state(store, above)) == ("committed", "committed")


def test_aliases_with_their_report_and_their_last_target_keep_all_that_they_were_made_from(
    store: ConditionalStore,
) -> None:
    data, old, new, other = (paths_of(name) for name in ("data", "old", "new", "other"))
    commit(store, data)
    for paths in (old, new, other):
        commit(store, paths, [data])
    point(store, "prod", new, previous=old.key)
    run_gc(store, 1)
    run_gc(store, 9)
    states = [state(store, paths) for paths in (data, old, new, other)]
    assert states == ["committed", "committed", "committed", "swept"]


def test_an_approval_keeps_what_was_approved(store: ConditionalStore) -> None:
    paths = paths_of("a")
    commit(store, paths)
    approval = Approval(
        gate_key="9" * 64,
        pipeline="weekly",
        gate="approve",
        approved=True,
        by="ann",
        at="",
        stages={"grpo": paths.key},
        manifests={},
    )
    write_approval(store, approval)
    assert run_gc(store, 400).condemned == 0


def test_a_run_keeps_what_it_used_for_as_long_as_runs_are_kept(store: ConditionalStore) -> None:
    above, below = paths_of("above"), paths_of("below")
    commit(store, above)
    commit(store, below, [above])
    record_run(store, below)
    assert run_gc(store, 29).condemned == 0
    assert run_gc(store, 29, Retention(runs=28 * DAY)).condemned == 2


def test_a_run_that_has_not_finished_keeps_what_it_used_also_where_runs_are_not_kept(store: ConditionalStore) -> None:
    paths = paths_of("a")
    commit(store, paths)
    record_run(store, paths, finished=None)
    assert run_gc(store, 29, NOW_OR_NEVER).condemned == 0
    assert run_gc(store, 31, NOW_OR_NEVER).condemned == 1


def test_a_stage_that_is_worked_on_and_its_inputs_are_left_alone(store: ConditionalStore) -> None:
    above, busy = paths_of("above"), paths_of("busy")
    commit(store, above)
    make_spec(store, busy, [above])
    attempt = make_attempt(store, busy, 1, steps=[2])
    make_lease(store, busy, 1, Path(attempt.folder).name, state="held")
    assert run_gc(store, 0.03, NOW_OR_NEVER) == Collected()
    # Not renewed for an hour: its holder is gone.
    run_gc(store, 0.05, NOW_OR_NEVER)
    assert state(store, above) == "condemned"
    assert store.list(busy.attempts) == []


def test_of_an_unfinished_stage_that_is_needed_the_best_step_and_the_newest_attempt_stay(
    store: ConditionalStore,
) -> None:
    paths = paths_of("a")
    make_spec(store, paths)
    attempts = [make_attempt(store, paths, epoch, steps) for epoch, steps in ((1, [2]), (2, [3, 4]), (3, [1]))]
    make_lease(store, paths, 3, Path(attempts[2].folder).name)
    record_run(store, paths)
    assert run_gc(store, 6).objects == 0
    run_gc(store, 9)
    left = [{listed.path.removeprefix(f"{one.folder}/") for listed in store.list(one.folder)} for one in attempts]
    records = {"attempt.json", "metrics/000000.jsonl"}
    steps = {f"progress/{step}{suffix}" for step in (3, 4) for suffix in ("/state", ".commit.json")}
    assert left[0] == records
    assert left[1] == records | steps
    assert left[2] == {*records, "out/checkpoint/weights", "progress/1/state", "progress/1.commit.json"}


def test_a_step_that_lost_its_files_is_not_kept_in_the_place_of_one_that_can_be_read(store: ConditionalStore) -> None:
    paths = paths_of("a")
    make_spec(store, paths)
    attempts = [make_attempt(store, paths, epoch, steps) for epoch, steps in ((1, [2]), (2, []), (3, []))]
    lost = ProgressFile(path="state", size=1, generation="7")
    write_record(store, attempts[1].progress_commit(9), ProgressCommit(step=9, created="", files=(lost,)))
    make_lease(store, paths, 3, Path(attempts[2].folder).name)
    record_run(store, paths)
    run_gc(store, 9)
    assert [point.step for point in committed_points(store, paths)] == [2]
    assert store.list(attempts[1].progress_folder) == []


def test_after_the_commit_one_step_stays_for_the_grace_and_superseded_outputs_go_after_it(
    store: ConditionalStore,
) -> None:
    paths = paths_of("a")
    superseded = make_attempt(store, paths, 1, steps=[2])
    manifest = commit(store, paths, steps=[4, 6], epoch=2)
    point(store, "prod", paths)
    result = paths.attempt(manifest.attempt)
    run_gc(store, 1)
    assert [p.step for p in committed_points(store, paths)] == [6]
    run_gc(store, 9)
    assert committed_points(store, paths) == []
    assert store.list(result.progress_folder) == []
    assert store.list(superseded.outputs) == []
    assert [listed.path for listed in store.list(superseded.folder)] == [superseded.record, superseded.metrics(0)]
    assert check_files(store, manifest) == []


def test_a_condemned_result_that_turns_out_damaged_is_not_rescued(store: ConditionalStore) -> None:
    paths = paths_of("a")
    manifest = commit(store, paths)
    run_gc(store, 1)
    quarantine(store, paths, "damaged", manifest.attempt)
    assert claim_manifest(store, paths) is None
    assert state(store, paths) == "quarantined"


def test_a_quarantined_result_that_nothing_needs_goes_after_the_grace(store: ConditionalStore) -> None:
    paths = paths_of("a")
    commit(store, paths)
    quarantine(store, paths, "damaged")
    assert run_gc(store, 6).objects == 0
    assert run_gc(store, 9).objects == 3
    assert state(store, paths) == "quarantined"


def test_files_that_dead_writers_left_in_a_local_store_go(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("v1/a", b"1")
    (tmp_path / ASIDE_FOLDER / "left").write_bytes(b"123")
    assert run_gc(store, 1).objects == 0
    assert run_gc(store, 9).objects == 1
    assert not (tmp_path / ASIDE_FOLDER / "left").exists()
    store.create("v1/b", b"1")


def test_a_folder_that_is_not_marked_as_a_store_is_left_alone(store: ConditionalStore) -> None:
    paths = paths_of("a")
    commit(store, paths)
    garbage = find_garbage(store, NOW_OR_NEVER, this_holder(), time.time() + 9 * DAY)
    with pytest.raises(UserError, match="missing, so this may be no store"):
        collect(store, garbage)
    store.create(MARKER, b'{"format": 9, "created": "", "id": ""}')
    with pytest.raises(UserError, match="format 9"):
        collect(store, garbage)
    assert state(store, paths) == "committed"


def test_a_stage_that_somebody_began_to_work_on_after_the_survey_is_left_alone(store: ConditionalStore) -> None:
    paths = paths_of("a")
    make_spec(store, paths)
    attempt = make_attempt(store, paths, 1, steps=[2])
    make_lease(store, paths, 1, Path(attempt.folder).name)
    ensure_marker(store)
    garbage = find_garbage(store, Retention(), this_holder(), time.time() + 40 * DAY)
    assert len(garbage.leftovers) == 1
    make_lease(store, paths, 2, "000002-new", state="held")
    assert collect(store, garbage) == Collected(skipped=1)
    assert [p.step for p in committed_points(store, paths)] == [2]


def test_a_step_that_is_half_deleted_does_not_look_committed() -> None:
    class StopsDeleting(MemoryStore):
        left = 1

        def delete(self, path: str) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            super().delete(path)

    store = StopsDeleting("memory://stops")
    paths = paths_of("a")
    attempt = make_attempt(store, paths, 1)
    make_progress(store, attempt, 7)
    ensure_marker(store)
    with pytest.raises(KeyboardInterrupt):
        run_gc(store, 40)
    assert committed_points(store, paths) == []
    assert store.get(f"{attempt.progress(7)}/state") is not None


class Interrupted(MemoryStore):
    """Calls back before one of the requests that are made of it."""

    def __init__(self) -> None:
        super().__init__("memory://interrupted")
        self.left = -1
        self.act: Callable[[], None] = self._nothing

    def _nothing(self) -> None:
        """Unless a test says otherwise."""

    def _tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()

    def get(self, path: str) -> StoredObject | None:
        self._tick()
        return super().get(path)

    def swap(self, path: str, data: bytes, generation: str) -> str:
        self._tick()
        return super().swap(path, data, generation)

    def delete(self, path: str) -> None:
        self._tick()
        super().delete(path)


@pytest.mark.parametrize("request_number", range(1, 9))
@pytest.mark.parametrize("first", ["hit", "sweep"])
def test_a_race_of_a_hit_with_a_sweep_leaves_no_live_manifest_without_files(first: str, request_number: int) -> None:
    store, paths = Interrupted(), paths_of("a")
    manifest = commit(store, paths)
    run_gc(store, 1)
    garbage = find_garbage(store, Retention(), this_holder(), time.time() + 9 * DAY)
    claimed: list[Manifest | None] = []

    def hit() -> None:
        claimed.append(claim_manifest(store, paths))

    def sweep() -> None:
        collect(store, garbage)

    store.act, act = (sweep, hit) if first == "hit" else (hit, sweep)
    store.left = request_number
    act()
    store.left = -1
    if not claimed:
        hit()
    if claimed[-1] is not None:
        assert (state(store, paths), check_files(store, manifest)) == ("committed", [])
    else:
        assert isinstance(read_manifest_file(store, paths).content, Swept)  # type: ignore[union-attr]


@st.composite
def dags(draw: st.DrawFn) -> list[list[int]]:
    """For each stage the earlier ones that it takes something from."""
    number = draw(st.integers(1, 10))
    return [draw(st.lists(st.integers(0, n - 1), unique=True, max_size=3)) if n else [] for n in range(number)]


def ancestors(dag: list[list[int]], nodes: set[int]) -> set[int]:
    return nodes.union(*(ancestors(dag, set(dag[node])) for node in nodes)) if nodes else set()


@settings(max_examples=150)
@given(dag=dags(), data=st.data())
def test_of_any_graph_of_stages_what_is_reachable_stays_and_all_else_goes_unless_it_is_used(
    dag: list[list[int]], data: st.DataObject
) -> None:
    store = MemoryStore("memory://dag")
    paths = [paths_of(str(n), kind=f"kind{n % 3}") for n in range(len(dag))]
    some = st.sets(st.integers(0, len(dag) - 1), max_size=3)
    unfinished = data.draw(some, "unfinished")
    manifests: dict[int, Manifest] = {}
    for n, upstream in enumerate(dag):
        if n in unfinished:
            make_spec(store, paths[n], [paths[m] for m in upstream])
        else:
            manifests[n] = commit(store, paths[n], [paths[m] for m in upstream])
    aliased, ran, leased = data.draw(some, "aliased"), data.draw(some, "ran"), data.draw(some, "leased") & unfinished
    for n in aliased:
        point(store, f"a{n}", paths[n])
    record_run(store, *(paths[n] for n in ran))
    for n in leased:
        make_lease(store, paths[n], 1, "000001-x", state="held")
    run_gc(store, 0.01)
    used = data.draw(some, "used")
    for n in used - unfinished:
        assert claim_manifest(store, paths[n]) == manifests[n]
    run_gc(store, 8)
    kept = ancestors(dag, aliased | ran)
    held_at_first = ancestors(dag, leased)
    for n, manifest in manifests.items():
        current = read_manifest(store, paths[n])
        assert current is None or check_files(store, manifest) == [], "a live manifest without files"
        if n in kept:
            assert state(store, paths[n]) == "committed"
        elif n in used or n in held_at_first:
            assert current == manifest
        else:
            assert (state(store, paths[n]), store.list(paths[n].attempts)) == ("swept", [])
