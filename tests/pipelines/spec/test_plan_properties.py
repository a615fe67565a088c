"""Pipelines of any shape: plans that follow each other, with what they ask for committed in between, come to an end."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.spec.diagnostics import Place
from pipelines.spec.nodes import (
    ActionNode,
    Condition,
    ExternalSource,
    GateNode,
    HumanGateNode,
    Node,
    Pipeline,
    Resources,
    Retry,
    SelectBest,
    SetAlias,
    StageInputSpec,
    StageNode,
    StageOutput,
    Timeout,
)
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_json import plan_json
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan, PlannedNode, produced_by
from pipelines.spec.require import parse_condition
from stages.catalog import STAGES
from stages.contract import DatasetArtifact, FileEntry, ModelArtifact, ReportArtifact
from stages.store.checksum import bytes_crc32c
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest, write_spec
from stages.store.memory import MemoryStore
from stages.store.provenance import Provenance
from stages.store.records import encode

PLACE = Place("any.yaml", 1, 1)
NOWHERE = Provenance(argv=(), git_revision=None, packages={}, host="here", python="3", system="test")
SETTINGS = {
    "prepare": {"source": "reasoning_gym://chain_sum?max_digits=1", "num_train": 8, "num_held_out": 4, "seed": 1},
    "sft": {
        "model": {"lora": {"rank": 2, "alpha": 4}},
        "optimizer": {"learning_rate": 0.01},
        "num_steps": 4,
        "batch_size": 8,
    },
    "evaluation": {"sampling": {"temperature": 0, "max_response_tokens": 4}},
}
stores = itertools.count()


def stage(
    node_id: str, kind: str, inputs: Mapping[str, StageInputSpec], seed: int, needs: tuple[str, ...]
) -> StageNode:
    settings = {**SETTINGS[kind], **({"seed": seed} if kind == "sft" else {})}
    taken = tuple(value.stage for value in inputs.values() if isinstance(value, StageOutput))
    return StageNode(
        id=node_id,
        kind=kind,
        config=STAGES[kind].config.model_validate_json(json.dumps(settings)),
        inputs=inputs,
        needs=tuple(dict.fromkeys([*taken, *needs])),
        rev=0,
        retry=Retry(0, (), 0.0, (), 0),
        timeout=Timeout(1.0, 1.0, 1.0),
        resources=Resources("cpu", share=False, python=None),
        place=PLACE,
    )


def checkpoint(node_id: str) -> StageOutput:
    return StageOutput(node_id, "checkpoint", ModelArtifact)


def report(node_id: str) -> StageOutput:
    return StageOutput(node_id, "report", ReportArtifact)


@st.composite
def pipelines(draw: st.DrawFn, folder: Path) -> Pipeline:
    """Trainings on trainings and on choices among them, evaluations, gates, aliases and conditions, in any order."""
    dataset = StageOutput("data", "train", DatasetArtifact)
    nodes: dict[str, Node] = {"data": stage("data", "prepare", {}, 0, ())}
    models: list[StageInputSpec] = [ExternalSource("base", PLACE)]
    reports: list[StageOutput] = []
    for n in range(draw(st.integers(1, 8))):
        needs = tuple(draw(st.lists(st.sampled_from(list(nodes)), max_size=1)))
        match draw(st.sampled_from(["train", "train", "evaluate", "select", "gate", "ask", "alias"])):
            case "train":
                inputs = {"model": draw(st.sampled_from(models)), "dataset": dataset}
                node: Node = stage(f"n{n}", "sft", inputs, draw(st.integers(0, 2)), needs)
                models.append(checkpoint(node.id))
            case "select" if len(reports) > 1:
                candidates = draw(st.lists(st.sampled_from(reports), min_size=1, max_size=3, unique=True))
                taken = {"candidates": tuple(of_report(nodes, one) for one in candidates), "reports": tuple(candidates)}
                before = tuple(dict.fromkeys(one.stage for side in taken.values() for one in side))
                node = ActionNode(f"n{n}", SelectBest("accuracy", "max"), taken, (*before, *needs), PLACE)
                models.append(checkpoint(node.id))
            case "gate" if reports:
                looked_at = draw(st.sampled_from(reports))
                node = GateNode(f"n{n}", {"report": looked_at}, (), "stop", (looked_at.stage, *needs), PLACE)
            case "ask":
                node = HumanGateNode(f"n{n}", needs, (), 60.0, PLACE)
            case "alias" if len(models) > 1:
                model = draw(st.sampled_from([one for one in models if isinstance(one, StageOutput)]))
                node = ActionNode(f"n{n}", SetAlias("a"), {"checkpoint": (model,)}, (model.stage, *needs), PLACE)
            case _:
                inputs = {"model": draw(st.sampled_from(models)), "dataset": dataset}
                node = stage(f"n{n}", "evaluation", inputs, 0, needs)
                reports.append(report(node.id))
        if reports and draw(st.integers(0, 3)) == 0 and report(node.id) != reports[-1]:
            about = draw(st.sampled_from(reports))
            text = f"${{stages.{about.stage}.outputs.report.accuracy}} >= {draw(st.sampled_from([0, 0.5, 2]))}"
            node = replace(
                node, condition=Condition(text, parse_condition(text), (about,)), needs=(*node.needs, about.stage)
            )
        nodes[node.id] = node
    return Pipeline("any", "", folder / "any.yaml", None, "memory://any", {}, nodes)


def of_report(nodes: Mapping[str, Node], output: StageOutput) -> StageOutput:
    """What an evaluation looked at, if a stage made it; otherwise the candidate is the report's own stage."""
    node = nodes[output.stage]
    model = node.inputs["model"] if isinstance(node, StageNode) else None
    return model if isinstance(model, StageOutput) else output


def commit(store: MemoryStore, planned: PlannedNode, accuracy: float) -> None:
    """What a run of the stage would leave."""
    assert planned.key is not None
    assert planned.payload is not None
    paths = StagePaths(planned.kind, planned.key)
    write_spec(store, paths, planned.payload)
    data = ReportArtifact(metrics={"accuracy": accuracy}).model_dump_json().encode()
    outputs: dict[str, tuple[FileEntry, ...]] = {}
    for output in STAGES[planned.kind].outputs:
        generation = store.create(f"{paths.attempt('000001-a').out(output)}/artifact.json", data)
        entry = FileEntry(path="artifact.json", size=len(data), crc32c=bytes_crc32c(data), generation=generation)
        outputs[output] = (entry,)
    manifest = Manifest(
        stage=planned.kind,
        key=planned.key,
        version=1,
        attempt="000001-a",
        epoch=1,
        outputs=outputs,
        numbers={},
        inputs={},
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        provenance=NOWHERE,
    )
    store.create(paths.manifest, encode(manifest))


def can_run(plan: Plan, planned: PlannedNode) -> bool:
    """Whether a run would start the stage now, as far as results go."""
    node = planned.node
    if not isinstance(node, StageNode) or planned.decision != "run" or planned.same_as is not None:
        return False
    taken = [value for value in node.inputs.values() if isinstance(value, StageOutput)]
    produced = [produced_by(plan.nodes, value) for value in taken]
    there = all(one is not None and plan.nodes[one.stage].manifest is not None for one in produced)
    return there and planned.key is not None and planned.pending is None


def run_to_the_end(pipeline: Pipeline, store: MemoryStore, accuracies: Iterator[float]) -> Plan:
    """Plan, commit one stage, plan again, until there is no work."""
    keys: dict[str, str] = {}
    while True:
        plan = make_plan(pipeline, store)
        assert json.loads(plan_json(plan))["has_work"] == plan.has_work
        known = {node_id: one.key for node_id, one in plan.nodes.items() if one.key is not None}
        lost = [node_id for node_id in keys if node_id not in known]
        assert all(plan.nodes[node_id].decision == "skip" for node_id in lost), "a key that is known stays known"
        assert all(known[node_id] == key for node_id, key in keys.items() if node_id not in lost)
        keys |= known
        if not plan.has_work:
            return plan
        started = [one for one in plan.nodes.values() if can_run(plan, one)]
        assert started, plan_text(plan)
        commit(store, started[0], next(accuracies))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any")
    (folder / "base").mkdir()
    (folder / "base" / "config.json").write_text("{}")
    return folder


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plans_and_commits_in_turns_leave_nothing_to_run(
    data: st.DataObject, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    pipeline = data.draw(pipelines(folder))
    accuracies = itertools.cycle(data.draw(st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=1, max_size=6)))
    plan = run_to_the_end(pipeline, MemoryStore(f"memory://any-{next(stores)}"), accuracies)
    for one in plan.nodes.values():
        assert one.pending is None
        if one.decision == "skip":
            assert one.reason.startswith(("its condition does not hold: ", "takes ", "needs "))
        elif isinstance(one.node, StageNode):
            assert one.decision == "reuse"
        elif isinstance(one.node, ActionNode) and isinstance(one.node.action, SelectBest):
            assert one.chosen is not None
