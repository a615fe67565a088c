"""What a plan knows of runs: its own, which may want new results, and others that work on the same stages."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import Plan
from stages.errors import UserError
from stages.store.holder import Holder, this_holder
from stages.store.layout import StagePaths
from stages.store.lease import LeaseRecord
from stages.store.local import LocalStore
from stages.store.manifest import Condemned, Manifest, read_manifest_file
from stages.store.records import write_record

Load = Callable[..., Pipeline]
Commit = Callable[..., Manifest]
CommitAll = Callable[[Plan], dict[str, Manifest]]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stage(pipeline: Pipeline, node_id: str, **changes: object) -> Pipeline:
    """The pipeline with a stage changed."""
    node = pipeline.nodes[node_id]
    assert isinstance(node, StageNode)
    return replace(pipeline, nodes={**pipeline.nodes, node_id: replace(node, **changes)})


def work(plan: Plan) -> dict[str, str]:
    return {
        node_id: planned.reason for node_id, planned in plan.nodes.items() if planned.decision not in ("reuse", "gate")
    }


# --- refresh and off -----------------------------------------------------------------------------


def test_a_refreshed_stage_runs_once_in_each_run(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    plan = make_plan(load(), store, refresh=["sft"], run_id="run-1")
    upstream = work(plan)["eval_sft"]
    assert work(plan) == {"sft": "cache refresh", "eval_sft": upstream}
    assert upstream.startswith("input model changed (sft ")
    commit_all(plan)
    assert not make_plan(load(), store, refresh=["sft"], run_id="run-1").has_work
    again = make_plan(load(), store, refresh=["sft"], run_id="run-2")
    assert again.nodes["sft"].key != plan.nodes["sft"].key
    assert not make_plan(load(), store, run_id="run-3").has_work


def test_the_key_of_a_refreshed_stage_is_unknown_outside_a_run(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    commit_all(make_plan(load(), store))
    plan = make_plan(stage(load(), "sft", cache="refresh"), store)
    told = "cache refresh: sft runs again in each run"
    assert work(plan) == {"sft": told, "eval_sft": told}
    assert plan.nodes["eval_sft"].key is None
    assert plan.has_work


def test_a_stage_without_a_cache_runs_in_every_plan_for_a_run(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    pipeline = stage(load(), "sft", cache="off")
    first = make_plan(pipeline, store, run_id="run-1")
    commit_all(first)
    retried = make_plan(pipeline, store, run_id="run-1")
    assert work(retried)["sft"] == "cache off"
    assert retried.nodes["sft"].key != first.nodes["sft"].key
    assert not make_plan(pipeline, store, run_id="run-1", before=first).has_work


def test_a_stage_that_is_left_out_is_taken_as_any_run_left_it(
    load: Load, store: LocalStore, commit_all: CommitAll
) -> None:
    commit_all(make_plan(load(), store))
    plan = make_plan(stage(load(), "sft", cache="refresh"), store, only=["eval_sft"])
    assert plan.nodes["sft"].decision == plan.nodes["eval_sft"].decision == "reuse"


def test_flags_that_run_stages_again_are_checked(load: Load, store: LocalStore) -> None:
    with pytest.raises(UserError, match="--refresh gate: gates and actions are decided anew"):
        make_plan(load(), store, refresh=["gate"])
    with pytest.raises(UserError, match="--refresh eval_sft: left out by --until"):
        make_plan(load(), store, refresh=["eval_sft"], until="sft")
    with pytest.raises(UserError, match="exclude each other: both name sft"):
        make_plan(load(), store, force=["sft"], refresh=["sft"])


def test_only_a_plan_for_a_run_saves_what_is_condemned(load: Load, store: LocalStore, commit_all: CommitAll) -> None:
    commit_all(make_plan(load(), store))
    planned = make_plan(load(), store).nodes["data"]
    assert planned.manifest is not None
    paths = planned.manifest.paths
    stored = store.get(paths.manifest)
    assert stored is not None
    condemned = Condemned(attempt="000001-abc", condemned_at="2026-01-02", manifest=stored.data.decode())
    write_record(store, paths.manifest, condemned)
    for run_id, kind in ((None, Condemned), ("run-1", Manifest)):
        assert make_plan(load(), store, run_id=run_id).nodes["data"].decision == "reuse"
        found = read_manifest_file(store, paths)
        assert found is not None
        assert isinstance(found.content, kind)


def test_a_plan_that_is_made_again_checks_only_what_is_new(load: Load, store: LocalStore, commit: Commit) -> None:
    data = commit(make_plan(load(), store), "data")
    first = make_plan(load(), store, run_id="run-1")
    commit(first, "sft")
    store.delete(f"{data.output_folder('train')}/data.bin")
    again = make_plan(load(), store, run_id="run-1", before=first)
    assert [again.nodes[node_id].decision for node_id in ("data", "sft")] == ["reuse", "reuse"]
    assert make_plan(load(), store, run_id="run-2").nodes["data"].damage is not None


def test_a_plan_that_is_made_again_keeps_the_keys_of_what_has_run(
    load: Load, store: LocalStore, commit: Commit, pipeline_file: Path
) -> None:
    first = make_plan(load(), store, run_id="run-1")
    commit(first, "data")
    (pipeline_file.parent / "rows.jsonl").write_text('{"edited": true}\n')
    make_plan(load(), store, force=["eval_base"], run_id="run-2")
    again = make_plan(load(), store, run_id="run-1", before=first)
    assert again.nodes["data"].decision == "reuse"
    assert {one.node.id: one.key for one in again.nodes.values()} == {
        one.node.id: one.key for one in first.nodes.values()
    }


def test_a_plan_that_is_made_again_keeps_what_the_run_forced(load: Load, store: LocalStore, commit: Commit) -> None:
    first = make_plan(load(), store, force=["data"], run_id="run-1")
    commit(first, "data")
    make_plan(load(), store, force=["data"], run_id="run-2")
    again = make_plan(load(), store, run_id="run-1", before=first)
    assert (again.nodes["data"].decision, again.nodes["data"].key) == ("reuse", first.nodes["data"].key)


def test_a_stage_whose_key_is_known_later_is_forced_then_and_once(load: Load, store: LocalStore) -> None:
    pipeline = stage(load(), "sft", cache="refresh")
    look = make_plan(pipeline, store, force=["eval_sft"])
    assert look.nodes["eval_sft"].key is None
    usual = make_plan(pipeline, store, run_id="run-1", before=look).nodes["eval_sft"].key
    forced = make_plan(pipeline, store, force=["eval_sft"], run_id="run-1", before=look)
    assert forced.nodes["eval_sft"].key != usual
    again = make_plan(pipeline, store, force=["eval_sft"], run_id="run-1", before=forced)
    assert again.nodes["eval_sft"].key == forced.nodes["eval_sft"].key


# --- other runs ----------------------------------------------------------------------------------

ELSEWHERE = this_holder().model_copy(update={"host": "elsewhere", "pid": 7, "run_url": "http://runs/1"})


def hold(
    store: LocalStore, plan: Plan, holder: Holder, state: Literal["held", "released"] = "held", stage_id: str = "data"
) -> None:
    planned = plan.nodes[stage_id]
    assert planned.key is not None
    record = LeaseRecord(epoch=3, attempt="000003-x", holder=holder, state=state, beat=2)
    write_record(store, StagePaths(planned.kind, planned.key).lease, record)


def test_a_stage_that_another_run_works_on_is_waited_for(
    load: Load, store: LocalStore, commit: Commit, save_progress: Callable[..., None]
) -> None:
    plan = make_plan(load(), store)
    commit(plan, "data")
    hold(store, plan, ELSEWHERE, stage_id="sft")
    planned = make_plan(load(), store).nodes["sft"]
    assert (planned.decision, planned.reason) == ("wait", "for http://runs/1, attempt 3, nothing saved yet")
    save_progress(plan, "sft", 2)
    hold(store, plan, ELSEWHERE.model_copy(update={"run_url": None}), stage_id="sft")
    plan = make_plan(load(), store)
    assert plan.nodes["sft"].reason == "for process 7 on elsewhere, attempt 3, saved step 2"
    assert plan.nodes["sft"].holder == ELSEWHERE.model_copy(update={"run_url": None})
    assert plan.has_work


def gone() -> Holder:
    """A process of this machine that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return this_holder().model_copy(update={"pid": child})


@pytest.mark.parametrize("holder", ["released", "own", "gone"])
def test_a_lease_that_stands_in_nobodys_way_is_no_wait(load: Load, store: LocalStore, holder: str) -> None:
    plan = make_plan(load(), store)
    holders = {"released": ELSEWHERE, "own": this_holder("http://here"), "gone": gone()}
    hold(store, plan, holders[holder], "released" if holder == "released" else "held")
    assert make_plan(load(), store).nodes["data"].decision == "run"


def test_a_conflict_is_told_as_it_will_end(load: Load, store: LocalStore) -> None:
    hold(store, make_plan(load(), store), ELSEWHERE)
    plan = make_plan(stage(load(), "data", on_conflict="fail"), store)
    assert plan.nodes["data"].decision == "wait"
    assert plan.nodes["data"].reason.endswith("; fails unless that run has ended (on_conflict: fail)")
    plan = make_plan(stage(load(), "data", on_conflict="takeover"), store)
    assert plan.nodes["data"].decision == "run"
    assert plan.nodes["data"].reason == "never run; takes it over from http://runs/1"
