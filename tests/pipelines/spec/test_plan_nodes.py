"""Choices, aliases and people in a plan; conditions have a file of their own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.spec.approval_key import approval_key
from pipelines.spec.diagnostics import Place, SpecError
from pipelines.spec.nodes import (
    ActionNode,
    AliasOutput,
    Condition,
    GateNode,
    HumanGateNode,
    Node,
    Pipeline,
    SelectBest,
    SetAlias,
    StageInputSpec,
    StageNode,
    StageOutput,
)
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan, PlannedNode, produced_by
from pipelines.spec.require import parse_condition
from pipelines.spec.stage_inputs import stage_inputs
from stages.contract import ModelArtifact, ReportArtifact, StoredInput
from stages.errors import UserError
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.approvals import Approval, write_approval
from stages.store.local import LocalStore
from stages.store.manifest import Manifest, manifest_digest

Load = Callable[..., Pipeline]
Commit = Callable[..., Manifest]

PLACE = Place("sweep.yaml", 9, 3)
AXES = (1, 2, 3)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def checkpoint(stage: str) -> StageOutput:
    return StageOutput(stage, "checkpoint", ModelArtifact)


def report(stage: str) -> StageOutput:
    return StageOutput(stage, "report", ReportArtifact)


def stage(base: Node, node_id: str, inputs: Mapping[str, StageInputSpec] | None = None, **changes: object) -> StageNode:
    """A stage like another one, under another name and with other inputs."""
    assert isinstance(base, StageNode)
    inputs = {**base.inputs, **(inputs or {})}
    needs = tuple(dict.fromkeys(value.stage for value in inputs.values() if isinstance(value, StageOutput)))
    return replace(base, id=node_id, inputs=inputs, needs=needs, **{"group": node_id, **changes})


def best(*names: str, metric: str = "win_rate") -> ActionNode:
    inputs = {
        "candidates": tuple(checkpoint(f"sft[{name}]") for name in names),
        "reports": tuple(report(f"eval[{name}]") for name in names),
    }
    needs = (*(f"sft[{name}]" for name in names), *(f"eval[{name}]" for name in names))
    return ActionNode("best", SelectBest(metric, "max"), inputs, needs, PLACE)


def looks_at(text: str, *outputs: StageOutput | AliasOutput) -> Condition:
    return Condition(text, parse_condition(text), outputs)


@pytest.fixture
def sweep(load: Load) -> Callable[..., Pipeline]:
    """`data`, instances of `sft` with an `eval` each, `best` of them, `more` on the best; and further nodes."""

    def sweep(*further: Node, axes: tuple[int, ...] = AXES, **changes: Node) -> Pipeline:
        small = load()
        nodes: dict[str, Node] = {"data": small.nodes["data"]}
        base = small.nodes["sft"]
        assert isinstance(base, StageNode)
        for n in axes:
            config = base.config.model_copy(update={"seed": n})
            nodes[f"sft[{n}]"] = stage(base, f"sft[{n}]", config=config, group="sft")
            nodes[f"eval[{n}]"] = stage(
                small.nodes["eval_sft"], f"eval[{n}]", {"model": checkpoint(f"sft[{n}]")}, group="eval"
            )
        nodes["best"] = best(*map(str, axes))
        nodes["more"] = stage(base, "more", {"model": checkpoint("best")})
        nodes["eval_more"] = stage(small.nodes["eval_sft"], "eval_more", {"model": checkpoint("more")})
        nodes |= {node.id: node for node in further} | changes
        return replace(small, nodes=nodes)

    return sweep


def commit_sweep(commit: Commit, plan: Plan, *rates: float) -> dict[str, Manifest]:
    """Commits the data and the first instances, with these win rates."""
    made = {"data": commit(plan, "data")}
    for n, rate in enumerate(rates, 1):
        made[f"sft[{n}]"] = commit(plan, f"sft[{n}]")
        made[f"eval[{n}]"] = commit(plan, f"eval[{n}]", {"win_rate": rate})
    return made


def decision(planned: PlannedNode) -> tuple[str, str]:
    return planned.decision, planned.reason


# --- select_best ---------------------------------------------------------------------------------


def test_what_takes_the_best_has_no_key_until_it_is_chosen(
    sweep: Callable[..., Pipeline], store: LocalStore, commit: Commit
) -> None:
    plan = make_plan(sweep(), store)
    assert decision(plan.nodes["best"]) == ("action", "chooses the max of win_rate among 3")
    for node_id in ("more", "eval_more"):
        assert decision(plan.nodes[node_id]) == ("run", "its key is known when best has chosen")
        assert plan.nodes[node_id].key is None
    commit_sweep(commit, plan, 0.5, 0.6)
    assert make_plan(sweep(), store).nodes["best"].chosen is None


def test_the_best_is_chosen_once_all_reports_are_committed(
    sweep: Callable[..., Pipeline], store: LocalStore, commit: Commit
) -> None:
    made = commit_sweep(commit, make_plan(sweep(), store), 0.5, 0.75, 0.6)
    plan = make_plan(sweep(), store)
    assert decision(plan.nodes["best"]) == ("action", "chose sft[2]: win_rate = 0.75, max of 3")
    assert plan.nodes["best"].chosen == 1
    assert plan.nodes["more"].key is not None
    assert produced_by(plan.nodes, checkpoint("best")) == checkpoint("sft[2]")
    assert produced_by(plan.nodes, report("best")) == report("eval[2]")
    inputs = stage_inputs(plan.nodes["more"], plan, {manifest.key: manifest for manifest in made.values()})
    model = inputs["model"]
    assert isinstance(model, StoredInput)
    assert (model.key, model.output) == (made["sft[2]"].key, "checkpoint")


def test_a_losing_candidate_that_is_added_later_runs_nothing_else_again(
    sweep: Callable[..., Pipeline], store: LocalStore, commit: Commit
) -> None:
    first = make_plan(sweep(axes=(1, 2)), store)
    commit_sweep(commit, first, 0.5, 0.75)
    commit(make_plan(sweep(axes=(1, 2)), store), "more")
    wider = make_plan(sweep(), store)
    commit(wider, "sft[3]")
    commit(wider, "eval[3]", {"win_rate": 0.6})
    assert make_plan(sweep(), store).nodes["more"].decision == "reuse"


def test_a_report_without_the_metric_is_told_by_its_name_and_fails_the_choice_in_the_run(
    sweep: Callable[..., Pipeline], store: LocalStore, commit: Commit
) -> None:
    commit_sweep(commit, make_plan(sweep(), store), 0.5, 0.6, 0.7)
    plan = make_plan(sweep(best=best("1", "2", "3", metric="win_rat")), store)
    assert plan.nodes["best"].reason.startswith(
        "fails: stages.best: stages.eval[1].outputs.report has no metric `win_rat`"
    )
    assert decision(plan.nodes["more"]) == ("run", "its key is known when best has chosen")


def test_only_what_follows_a_choice_runs_on_it(
    sweep: Callable[..., Pipeline], store: LocalStore, commit: Commit
) -> None:
    with pytest.raises(UserError, match=r"--only: more takes stages.best.outputs.checkpoint, which is not committed"):
        make_plan(sweep(), store, only=["more"])
    commit_sweep(commit, make_plan(sweep(), store), 0.5, 0.75, 0.6)
    plan = make_plan(sweep(), store, only=["more"])
    assert [plan.nodes[node_id].decision for node_id in ("best", "more", "eval_more")] == ["action", "run", "skip"]


# --- a group of instances ------------------------------------------------------------------------


def test_a_flag_names_a_group_or_one_of_its_instances(sweep: Callable[..., Pipeline], store: LocalStore) -> None:
    plan = make_plan(sweep(), store, until="sft")
    assert [node_id for node_id, planned in plan.nodes.items() if planned.decision == "run"] == [
        "data",
        "sft[1]",
        "sft[2]",
        "sft[3]",
    ]
    plan = make_plan(sweep(), store, only=["data", "sft[2]"])
    assert [node_id for node_id, planned in plan.nodes.items() if planned.decision == "run"] == ["data", "sft[2]"]
    with pytest.raises(UserError, match=r"--only stf: no stage of small \(did you mean `sft`\?\)"):
        make_plan(sweep(), store, only=["stf"])


# --- aliases -------------------------------------------------------------------------------------


def target(manifest: Manifest, output: str) -> AliasTarget:
    return AliasTarget(stage=manifest.stage, key=manifest.key, output=output, manifest_generation="1")


def point(store: LocalStore, name: str, model: Manifest, about: Manifest | None = None) -> None:
    record = AliasRecord(
        name=name,
        checkpoint=target(model, "checkpoint"),
        report=None if about is None else target(about, "report"),
        set_by="run-1",
        set_at="2026-02-01T00:00:00+00:00",
    )
    set_alias(store, record, None)


def with_alias(load: Load, artifact: type[ModelArtifact] | type[ReportArtifact] = ModelArtifact) -> Pipeline:
    small = load()
    alias = AliasOutput("prod", artifact, PLACE)
    if artifact is ModelArtifact:
        return replace(small, nodes={**small.nodes, "sft": stage(small.nodes["sft"], "sft", {"model": alias})})
    gate = GateNode("gate", {"report": report("eval_sft")}, (looks_at("true", alias),), "stop", ("eval_sft",), PLACE)
    return replace(small, nodes={**small.nodes, "gate": gate})


def test_a_stage_takes_what_an_alias_points_to_and_has_its_key(load: Load, store: LocalStore, commit: Commit) -> None:
    plan = make_plan(load(), store)
    commit(plan, "data")
    model = commit(plan, "sft")
    point(store, "prod", model)
    plan = make_plan(with_alias(load), store)
    assert plan.nodes["sft"].decision == "run"
    assert f'"model":{{"key":"{model.key}","output":"checkpoint"}}'.encode() in (plan.nodes["sft"].payload or b"")
    taken = stage_inputs(plan.nodes["sft"], plan, {m.key: m for m in (plan.nodes["data"].manifest,) if m})["model"]
    assert isinstance(taken, StoredInput)
    assert (taken.key, taken.stage) == (model.key, "sft")
    assert f"alias prod → sft {model.key[:16]}, set 2026-02-01" in plan_text(plan)


def test_a_run_that_plans_again_keeps_where_an_alias_pointed(load: Load, store: LocalStore, commit: Commit) -> None:
    first = make_plan(load(), store)
    point(store, "prod", commit(first, "sft"))
    before = make_plan(with_alias(load), store)
    store.delete("v1/aliases/prod.json")
    point(store, "prod", commit(make_plan(load("stages.sft.rev=1"), store), "sft"))
    assert make_plan(with_alias(load), store, before=before).nodes["sft"].key == before.nodes["sft"].key
    assert make_plan(with_alias(load), store).nodes["sft"].key != before.nodes["sft"].key


def test_an_alias_that_cannot_be_used_is_told_at_its_place(load: Load, store: LocalStore, commit: Commit) -> None:
    with pytest.raises(SpecError, match=r"sweep.yaml:9:3: nobody set the alias `prod`"):
        make_plan(with_alias(load), store)
    model = commit(make_plan(load(), store), "sft")
    point(store, "prod", model)
    with pytest.raises(SpecError, match="alias `prod` has no report"):
        make_plan(with_alias(load, ReportArtifact), store)
    store.delete(f"{model.output_folder('checkpoint')}/data.bin")
    with pytest.raises(SpecError, match=r"not usable: checkpoint/data.bin: missing"):
        make_plan(with_alias(load), store)


def test_what_is_left_out_may_name_an_alias_that_nobody_set(load: Load, store: LocalStore) -> None:
    plan = make_plan(with_alias(load), store, until="eval_base")
    assert plan.nodes["sft"].decision == "skip"


def test_setting_an_alias_is_an_effect_until_it_is_set(load: Load, store: LocalStore, commit: Commit) -> None:
    small = load()
    inputs = {"checkpoint": (checkpoint("sft"),), "report": (report("eval_sft"),)}
    promote = ActionNode("promote", SetAlias("prod"), inputs, ("sft", "eval_sft"), PLACE)
    pipeline = replace(small, nodes={**small.nodes, "promote": promote})
    plan = make_plan(pipeline, store)
    key = plan.nodes["sft"].key or ""
    assert decision(plan.nodes["promote"]) == ("action", f"alias prod → sft {key[:16]}")
    assert plan.has_effects
    model, about = commit(plan, "sft"), commit(plan, "eval_sft")
    point(store, "prod", model, about)
    plan = make_plan(pipeline, store)
    assert decision(plan.nodes["promote"]) == ("action", f"alias prod is sft {key[:16]} already")
    assert not plan.has_effects


# --- people --------------------------------------------------------------------------------------

WEEK = timedelta(days=7).total_seconds()


def ask(*needs: str) -> HumanGateNode:
    return HumanGateNode("ok", needs, ("ml-leads",), WEEK, PLACE)


def approve(store: LocalStore, plan: Plan, approved: bool, manifests: dict[str, Manifest]) -> None:
    key = plan.nodes["ok"].key
    assert key is not None
    approval = Approval(
        gate_key=key,
        pipeline="small",
        gate="ok",
        approved=approved,
        by="ada",
        at="2026-03-01T10:00:00+00:00",
        stages={node_id: manifest.key for node_id, manifest in manifests.items()},
        manifests={node_id: manifest_digest(manifest) for node_id, manifest in manifests.items()},
    )
    write_approval(store, approval)


def test_a_human_gate_has_the_key_of_the_stages_before_it(load: Load, store: LocalStore, commit: Commit) -> None:
    small = load()
    pipeline = replace(small, nodes={**small.nodes, "ok": ask("gate")})
    plan = make_plan(pipeline, store)
    stages = {"eval_sft": plan.nodes["eval_sft"].key or ""}
    assert plan.nodes["gate"].node.needs == ("eval_sft", "eval_base")
    stages["eval_base"] = plan.nodes["eval_base"].key or ""
    assert plan.nodes["ok"].key == approval_key("small", "ok", stages)
    assert decision(plan.nodes["ok"]) == ("gate", "asks ml-leads when that is done which it waits for")
    manifests = {node_id: commit(plan, node_id) for node_id in ("data", "sft", "eval_base", "eval_sft")}
    plan = make_plan(pipeline, store)
    told = f"waits for approval: temper approve {pipeline.path} ok"
    assert (decision(plan.nodes["ok"]), plan.nodes["ok"].is_settled) == (("gate", told), False)
    approved = {node_id: manifests[node_id] for node_id in stages}
    approve(store, plan, True, approved)
    plan = make_plan(pipeline, store)
    assert decision(plan.nodes["ok"]) == ("gate", "approved by ada at 2026-03-01 10:00:00 UTC")
    assert plan.nodes["ok"].is_settled
    approve(store, plan, False, approved)
    assert make_plan(pipeline, store).nodes["ok"].reason.startswith("rejected by ada")


def test_a_gate_that_is_chosen_alone_asks_what_it_asks_in_the_whole_pipeline(
    load: Load, store: LocalStore, commit: Commit
) -> None:
    small = load()
    pipeline = replace(small, nodes={**small.nodes, "ok": ask("gate")})
    with pytest.raises(UserError, match=r"--only: ok asks about eval_base, which is not committed: choose eval_base"):
        make_plan(pipeline, store, only=["ok"])
    for node_id in ("data", "sft", "eval_base", "eval_sft"):
        commit(make_plan(pipeline, store), node_id)
    alone = make_plan(pipeline, store, only=["ok"]).nodes
    assert alone["gate"].decision == "skip"
    assert alone["ok"].key == make_plan(pipeline, store).nodes["ok"].key is not None


def test_a_decision_about_other_bytes_under_the_same_key_is_void(load: Load, store: LocalStore, commit: Commit) -> None:
    small = load()
    pipeline = replace(small, nodes={**small.nodes, "ok": ask("data")})
    data = commit(make_plan(pipeline, store), "data")
    other = data.model_copy(update={"outputs": {}})
    approve(store, make_plan(pipeline, store), True, {"data": other})
    planned = make_plan(pipeline, store).nodes["ok"]
    assert not planned.is_settled
    assert planned.reason.startswith("waits for approval again, for results were made anew since ada answered: temper")


def test_a_gate_after_a_choice_asks_about_the_chosen_one_only(
    sweep: Callable[..., Pipeline], store: LocalStore, commit: Commit
) -> None:
    pipeline = sweep(ok=ask("best"))
    assert make_plan(pipeline, store).nodes["ok"].key is None
    commit_sweep(commit, make_plan(pipeline, store), 0.5, 0.75, 0.6)
    plan = make_plan(pipeline, store)
    stages = {node_id: plan.nodes[node_id].key or "" for node_id in ("eval[2]", "sft[2]")}
    assert plan.nodes["ok"].key == approval_key("small", "ok", stages)


def test_a_gate_that_asks_when_it_fails_has_the_key_of_the_answer(load: Load, store: LocalStore) -> None:
    small = load()
    gate = small.nodes["gate"]
    assert isinstance(gate, GateNode)
    assert make_plan(small, store).nodes["gate"].key is None
    pipeline = replace(small, nodes={**small.nodes, "gate": replace(gate, on_fail="ask")})
    assert make_plan(pipeline, store).nodes["gate"].key is not None
