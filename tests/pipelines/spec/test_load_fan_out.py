"""Stages that a matrix or another stage fans out, as they are loaded."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import ActionNode, Pipeline, SelectBest, StageNode, StageOutput
from pipelines.spec.plan import make_plan
from stages.contract import ModelArtifact, ReportArtifact
from stages.evaluation.config import EvaluationConfig
from stages.sft.config import SftConfig
from stages.store.memory import MemoryStore

Load = Callable[..., Pipeline]

SWEEP = {
    "    uses: sft\n": "    uses: sft\n    matrix: {lr: [1e-3, 1e-2], steps: [4]}\n    max_parallel: 1\n",
    "learning_rate: 1e-3": 'learning_rate: "${matrix.lr}"',
    "num_steps: 4": 'num_steps: "${matrix.steps}"',
    "  eval_sft:\n    uses: evaluation\n": "  eval_sft:\n    uses: evaluation\n    for_each: sft\n",
    "${stages.sft.outputs.checkpoint}": "${each.outputs.checkpoint}",
    "  gate:\n": """\
  best:
    action: select_best
    inputs:
      candidates: "${stages.sft[*].outputs.checkpoint}"
      reports: "${stages.eval_sft[*].outputs.report}"
    with: {metric: accuracy}
  gate:
""",
    'report: "${stages.eval_sft.outputs.report}"': 'report: "${stages.best.outputs.report}"',
}
FIRST, SECOND = "lr=0.001,steps=4", "lr=0.01,steps=4"


def test_a_fanned_out_stage_is_a_stage_for_each_cell(load: Load) -> None:
    nodes = load(replace=SWEEP).nodes
    assert list(nodes) == [
        "data",
        f"sft[{FIRST}]",
        f"sft[{SECOND}]",
        "eval_base",
        f"eval_sft[{FIRST}]",
        f"eval_sft[{SECOND}]",
        "best",
        "gate",
    ]
    second = nodes[f"sft[{SECOND}]"]
    assert isinstance(second, StageNode)
    assert isinstance(second.config, SftConfig)
    assert second.config.optimizer.learning_rate == 0.01
    assert (second.group, second.max_parallel) == ("sft", 1)


def test_for_each_takes_the_outputs_of_its_instance(load: Load) -> None:
    node = load(replace=SWEEP).nodes[f"eval_sft[{SECOND}]"]
    assert isinstance(node, StageNode)
    assert node.inputs["model"] == StageOutput(f"sft[{SECOND}]", "checkpoint", ModelArtifact)
    assert node.needs == (f"sft[{SECOND}]", "data")


def test_an_action_takes_the_lists_of_all_instances_in_one_order(load: Load) -> None:
    best = load(replace=SWEEP).nodes["best"]
    assert isinstance(best, ActionNode)
    assert best.action == SelectBest("accuracy", "max")
    assert best.inputs == {
        "candidates": tuple(StageOutput(f"sft[{cell}]", "checkpoint", ModelArtifact) for cell in (FIRST, SECOND)),
        "reports": tuple(StageOutput(f"eval_sft[{cell}]", "report", ReportArtifact) for cell in (FIRST, SECOND)),
    }
    assert set(best.needs) == {f"{stage}[{cell}]" for stage in ("sft", "eval_sft") for cell in (FIRST, SECOND)}


def test_one_instance_is_taken_by_its_cell_and_a_need_of_the_group_is_of_all(load: Load) -> None:
    pipeline = load(
        replace=SWEEP
        | {
            "  eval_base:\n    uses: evaluation\n": (
                '  eval_base:\n    uses: evaluation\n    needs: [sft, "eval_sft[lr=1e-2]"]\n'
            ),
            '["accuracy >= 0.5",': '["accuracy >= ${stages.eval_sft[lr=0.010].outputs.report.accuracy}",',
        }
    )
    base, gate = pipeline.nodes["eval_base"], pipeline.nodes["gate"]
    assert isinstance(base, StageNode)
    assert base.needs == ("data", f"sft[{FIRST}]", f"sft[{SECOND}]", f"eval_sft[{SECOND}]")
    assert f"eval_sft[{SECOND}]" in gate.needs


def test_values_of_the_other_stages_cell_may_stand_in_settings(load: Load) -> None:
    each = {"max_response_tokens: 4}}\n  best": 'max_response_tokens: "${each.matrix.steps}"}}\n  best'}
    node = load(replace=SWEEP | each).nodes[f"eval_sft[{FIRST}]"]
    assert isinstance(node, StageNode)
    assert isinstance(node.config, EvaluationConfig)
    assert node.config.sampling is not None
    assert node.config.sampling.max_response_tokens == 4


def test_a_profile_and_an_override_change_an_axis_and_leave_the_others(load: Load) -> None:
    profile = {"stages:\n": "profiles:\n  small: {stages: {sft: {matrix: {lr: [5e-3]}}}}\nstages:\n"}
    small = load(profile="small", replace=SWEEP | profile)
    assert [node for node in small.nodes if node.startswith("sft")] == ["sft[lr=0.005,steps=4]"]
    overridden = load("stages.sft.matrix.steps=[2, 3]", profile="small", replace=SWEEP | profile)
    assert [node for node in overridden.nodes if node.startswith("sft")] == [
        "sft[lr=0.005,steps=2]",
        "sft[lr=0.005,steps=3]",
    ]


def test_a_value_of_a_matrix_may_be_a_parameter(load: Load) -> None:
    pipeline = load(replace=SWEEP | {"    matrix: {lr": '    matrix: {seed: ["${params.seed}"], lr'})
    assert "sft[seed=7,lr=0.001,steps=4]" in pipeline.nodes


CASES: dict[str, tuple[dict[str, str], list[str]]] = {
    "a fault of all instances": (
        {"batch_size: 8": "batch_size: 0"},
        ["19:7: stages.sft.with.batch_size: should be greater than or equal to 1, not 0"],
    ),
    "a fault of one instance": (
        {"[1e-3, 1e-2]": "[1e-3, -1]"},
        ["17:19: stages.sft[lr=-1,steps=4].with.optimizer.learning_rate: should be greater than 0, not -1"],
    ),
    "a setting that does not exist": (
        {"batch_size: 8": "batch_siz: 8"},
        [
            "15:5: stages.sft.with.batch_size: required, but missing",
            "19:7: stages.sft.with.batch_siz: unknown key (did you mean `batch_size`?)",
        ],
    ),
    "an axis that does not exist": (
        {"${matrix.steps}": "${matrix.step}"},
        ["18:7: stages.sft.with.num_steps: `${matrix.step}`: `sft` has no axis `step` (did you mean `steps`?)"],
    ),
    "a fanned-out stage taken as one": (
        {'candidates: "${stages.sft[*].outputs': 'candidates: "${stages.sft.outputs'},
        [
            (
                "33:7: stages.best.inputs.candidates: `sft` is fanned out: `sft[lr=0.001,steps=4]` is one of it, "
                "`sft[*]` the list, and `for_each: sft` goes with each"
            )
        ],
    ),
    "an instance that does not exist": (
        {"'${stages.eval_base.outputs.report}'": "'${stages.sft[lr=7].outputs.report}'"},
        [
            (
                "39:34: stages.gate.require.1: no instance `sft[lr=7]`; there are `sft[lr=0.001,steps=4]`, "
                "`sft[lr=0.01,steps=4]`"
            )
        ],
    ),
    "a list where one is taken": (
        {"${stages.best.outputs.report}": "${stages.eval_sft[*].outputs.report}"},
        ["38:14: stages.gate.inputs.report: takes one report, not 2: `${stages.eval_sft[*].outputs.report}`"],
    ),
    "a list in a condition": (
        {"'${stages.eval_base.outputs.report}'": "'${stages.eval_sft[*].outputs.report}'"},
        [
            (
                "39:34: stages.gate.require.1: `${stages.eval_sft[*].outputs.report}` is a list, "
                "and a condition looks at one report"
            )
        ],
    ),
    "brackets behind a single stage": (
        {"${stages.data.outputs.train}": "${stages.data[*].outputs.train}"},
        ["14:45: stages.sft.inputs.dataset: `data` is a single stage: leave out `[*]`"],
    ),
    "as many reports as there are not": (
        {"${stages.eval_sft[*].outputs.report}": "${stages.eval_base.outputs.report}"},
        ["32:5: stages.best.inputs.reports: 1 reports for 2 candidates: each has one, in the same order"],
    ),
    "for_each over a single stage": (
        {"for_each: sft": "for_each: data"},
        ["27:5: stages.eval_sft.for_each: `data` is a single stage: it has neither `matrix` nor `for_each`"],
    ),
    "each without for_each": (
        {"    for_each: sft\n": ""},
        [
            "27:14: stages.eval_sft.inputs.model: `${each.outputs.checkpoint}`: `eval_sft` has no `for_each`",
            "33:7: stages.best.inputs.reports: `eval_sft` is a single stage: leave out `[*]`",
        ],
    ),
    "the other stage's cell as one's own": (
        {"max_response_tokens: 4}}\n  best": 'max_response_tokens: "${matrix.steps}"}}\n  best'},
        [
            (
                "29:39: stages.eval_sft.with.sampling.max_response_tokens: `${matrix.steps}` is of `sft`: "
                "write `${each.matrix.steps}`"
            )
        ],
    ),
    "a faulty matrix": ({"steps: [4]": "steps: []"}, ["12:32: stages.sft.matrix.steps: expected a list of at least"]),
    "max_parallel of a single stage": (
        {"    for_each: sft\n": "    max_parallel: 2\n", "${each.outputs.checkpoint}": "base"}
        | {"${stages.eval_sft[*].outputs.report}": "${stages.sft[*].outputs.report}"},
        ["27:5: stages.eval_sft.max_parallel: only for a stage with `matrix` or `for_each`"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_of_a_fanned_out_stage_is_told_once_with_its_place(case: str, load: Load, pipeline_file: Path) -> None:
    load(replace=SWEEP)
    text = pipeline_file.read_text()
    changes, expected = CASES[case]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    pipeline_file.write_text(text)
    with pytest.raises(SpecError) as raised:
        load_pipeline(pipeline_file)
    found = [str(diagnostic).removeprefix(f"{pipeline_file}:") for diagnostic in raised.value.diagnostics]
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start), line


def test_a_thousand_instances_are_loaded_in_seconds(load: Load, pipeline_file: Path) -> None:
    load(replace=SWEEP)
    rates = ", ".join(f"{number}e-6" for number in range(1, 491))
    pipeline_file.write_text(pipeline_file.read_text().replace("[1e-3, 1e-2]", f"[{rates}]"))
    start = time.monotonic()
    assert len(load_pipeline(pipeline_file).nodes) == 2 * 490 + 4
    assert time.monotonic() - start < 10


def test_a_cell_has_the_key_of_the_stage_written_by_hand_whatever_the_other_cells(load: Load) -> None:
    def keys(pipeline: Pipeline) -> dict[str, str | None]:
        return {node: planned.key for node, planned in make_plan(pipeline, MemoryStore("x")).nodes.items()}

    by_hand = keys(load(replace={"learning_rate: 1e-3": "learning_rate: 0.01"}))
    two = keys(load(replace=SWEEP))
    three = keys(load("stages.sft.matrix.lr=[1e-2, 5, 1e-3]", replace=SWEEP))
    for stage in ("sft", "eval_sft"):
        assert two[f"{stage}[{SECOND}]"] == three[f"{stage}[{SECOND}]"] == by_hand[stage]
        assert two[f"{stage}[{FIRST}]"] == three[f"{stage}[{FIRST}]"] != by_hand[stage]
