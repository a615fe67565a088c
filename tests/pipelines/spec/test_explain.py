"""Why a stage runs: compared with what it was, and followed upstream."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.history import RUNS_READ
from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import Plan
from stages.store.conditional import StoredObject
from stages.store.local import LocalStore
from stages.store.manifest import Manifest
from stages.store.runs import RunRecord, RunStage, write_run

Load = Callable[..., Pipeline]
CommitAll = Callable[[Plan], dict[str, Manifest]]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def record(store: LocalStore, plan: Plan, number: int, profile: str | None = None) -> None:
    """The record of a run of this plan."""
    stages = tuple(RunStage(id=node_id, kind=one.kind, key=one.key) for node_id, one in plan.nodes.items())
    run = RunRecord(
        run_id=f"202601{number:02d}T000000Z-aaaaaaaa",
        pipeline="small",
        profile=profile,
        argv=(),
        started="2026-01-01",
        stages=stages,
    )
    write_run(store, run)


def short(plan: Plan, node_id: str) -> str:
    return (plan.nodes[node_id].key or "")[:4]


def test_a_stage_is_compared_with_what_it_was_in_the_run_before(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    run = make_plan(load(), store)
    commit_all(run)
    commit_all(make_plan(load("stages.sft.with.num_steps=8", "stages.sft.with.batch_size=16"), store))
    changed = load("stages.sft.with.num_steps=9", "stages.sft.with.batch_size=16")
    assert make_plan(changed, store).nodes["sft"].reason == "with.num_steps: 8 → 9"
    record(store, run, 1)
    assert make_plan(changed, store).nodes["sft"].reason == "with.batch_size: 8 → 16; with.num_steps: 4 → 9"


def test_runs_with_the_same_profile_come_first(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    for number, profile in enumerate((None, None, "long"), start=1):
        plan = make_plan(load(f"stages.sft.with.num_steps={number + 4}"), store)
        commit_all(plan)
        record(store, plan, number, profile)
    assert make_plan(load("stages.sft.with.num_steps=20"), store).nodes["sft"].reason == "with.num_steps: 6 → 20"


def test_a_changed_input_is_followed_to_the_first_field_that_differs(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    before = make_plan(load(), store)
    commit_all(before)
    plan = make_plan(load("stages.data.with.num_train=16"), store)
    data = f"data {short(before, 'data')}→{short(plan, 'data')}: with.num_train: 8 → 16"
    assert plan.nodes["sft"].reason == f"input dataset changed ({data})"
    sft = f"sft {short(before, 'sft')}→{short(plan, 'sft')}: {data}"
    assert plan.nodes["eval_sft"].reason == f"input dataset changed ({data}); input model changed ({sft})"


def test_records_of_another_version_explain_nothing_and_stop_no_plan(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    plan = make_plan(load(), store)
    commit_all(plan)
    store.create("v1/runs/small/2027/20270101T000000Z-aaaaaaaa/run.json", b'{"from": "later"}')
    store.create(f"v1/stages/sft/{'0' * 64}/manifest.json", b'{"state": "committed", "from": "later"}')
    store.create(f"v1/stages/sft/{'0' * 64}/spec.json", b"{}")
    assert make_plan(load("stages.sft.rev=1"), store).nodes["sft"].reason == "rev: 0 → 1"


class CountsReads(LocalStore):
    reads = 0

    def get(self, path: str) -> StoredObject | None:
        self.reads += 1
        return super().get(path)


def test_no_more_runs_are_read_than_needed(
    load: Load, store: LocalStore, commit_all: CommitAll, tmp_path: Path
) -> None:
    plan = make_plan(load(), store)
    commit_all(plan)
    counts = CountsReads(tmp_path / "store")
    changed = load("stages.sft.rev=1")
    make_plan(changed, counts)
    without = counts.reads
    for number in range(1, 9):
        record(store, plan, number)
    counts.reads = 0
    make_plan(changed, counts)
    assert counts.reads == without + RUNS_READ
