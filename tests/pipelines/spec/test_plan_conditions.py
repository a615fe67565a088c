"""Conditions in a plan: decided by it, left to the run, or impossible to decide."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.spec.nodes import Condition, Pipeline, StageOutput
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import PlannedNode
from pipelines.spec.require import parse_condition
from stages.contract import ReportArtifact
from stages.errors import UserError
from stages.store.local import LocalStore
from stages.store.manifest import Manifest

Load = Callable[..., Pipeline]
Commit = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def report(stage: str) -> StageOutput:
    return StageOutput(stage, "report", ReportArtifact)


def looks_at(text: str, *outputs: StageOutput) -> Condition:
    return Condition(text, parse_condition(text), outputs)


def decision(planned: PlannedNode) -> tuple[str, str]:
    return planned.decision, planned.reason


def with_condition(load: Load, condition: Condition, node_id: str = "sft") -> Pipeline:
    small = load()
    return replace(small, nodes={**small.nodes, node_id: replace(small.nodes[node_id], condition=condition)})


def test_a_condition_without_reports_is_decided_by_the_plan(load: Load, store: LocalStore) -> None:
    plan = make_plan(with_condition(load, looks_at("7 == 8")), store)
    assert decision(plan.nodes["sft"]) == ("skip", "its condition does not hold: 7 == 8")
    assert decision(plan.nodes["eval_sft"]) == ("skip", "takes stages.sft.outputs.checkpoint, which is left out")
    assert decision(plan.nodes["gate"]) == ("skip", "takes stages.eval_sft.outputs.report, which is left out")
    assert plan.nodes["eval_base"].decision == "run"
    plan = make_plan(with_condition(load, looks_at("7 == 7")), store)
    assert decision(plan.nodes["sft"]) == ("run", "never run")
    assert plan.nodes["sft"].pending is None


def test_a_condition_on_a_report_is_decided_once_the_report_is_committed(
    load: Load, store: LocalStore, commit: Commit
) -> None:
    condition = looks_at("${stages.eval_base.outputs.report.accuracy} < 0.4", report("eval_base"))
    pipeline = with_condition(load, condition, "eval_sft")
    plan = make_plan(pipeline, store)
    assert plan.nodes["eval_sft"].pending is condition
    assert plan.nodes["eval_sft"].reason == f"never run; if {condition.text}"
    assert plan.nodes["eval_sft"].key is not None
    commit(plan, "data")
    commit(plan, "eval_base", {"accuracy": 0.5})
    plan = make_plan(pipeline, store)
    assert plan.nodes["eval_sft"].pending is None
    told = f"its condition does not hold: {condition.text} (accuracy of eval_base = 0.5)"
    assert decision(plan.nodes["eval_sft"]) == ("skip", told)


def test_a_condition_that_cannot_be_decided_is_told_and_fails_in_the_run(
    load: Load, store: LocalStore, commit: Commit
) -> None:
    condition = looks_at("${stages.eval_base.outputs.report.f1} < 0.4", report("eval_base"))
    pipeline = with_condition(load, condition, "eval_sft")
    commit(make_plan(pipeline, store), "data")
    commit(make_plan(pipeline, store), "eval_base", {"accuracy": 0.5})
    planned = make_plan(pipeline, store).nodes["eval_sft"]
    assert (planned.decision, planned.pending) == ("run", condition)
    assert planned.reason.startswith(f"never run; fails: if `{condition.text}`: the report has no metric `f1`")
    assert make_plan(pipeline, store, only=["sft"]).nodes["eval_sft"].decision == "skip"


def test_the_condition_of_what_is_left_out_is_not_looked_at(load: Load, store: LocalStore, commit: Commit) -> None:
    condition = looks_at("${stages.eval_base.outputs.report.accuracy} < 0.4", report("eval_base"))
    pipeline = with_condition(load, condition, "eval_sft")
    for node_id in ("data", "sft", "eval_sft"):
        commit(make_plan(pipeline, store), node_id)
    plan = make_plan(pipeline, store, only=["sft"])
    assert (plan.nodes["eval_base"].decision, plan.nodes["eval_sft"].decision) == ("skip", "reuse")
    assert plan.nodes["eval_sft"].pending is None
    assert make_plan(pipeline, store).nodes["eval_sft"].pending is condition


def test_a_condition_on_a_report_that_is_left_out_is_refused(load: Load, store: LocalStore) -> None:
    condition = looks_at("${stages.eval_base.outputs.report.accuracy} < 0.4", report("eval_base"))
    with pytest.raises(
        UserError, match=r"--only: eval_sft takes stages.eval_base.outputs.report, which is not committed"
    ):
        make_plan(with_condition(load, condition, "eval_sft"), store, only=["data", "sft", "eval_sft"])
