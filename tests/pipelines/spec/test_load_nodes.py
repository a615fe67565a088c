"""Gates, actions, conditions, aliases and the sections around the stages, as they are loaded."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.expressions import Delta, leaves
from pipelines.spec.nodes import (
    ActionNode,
    AliasOutput,
    GateNode,
    HumanGateNode,
    Notify,
    Pipeline,
    Resume,
    Schedule,
    SetAlias,
    StageNode,
    StageOutput,
)
from pipelines.spec.references import AliasReference, OutputReference
from stages.contract import DatasetArtifact, ModelArtifact, ReportArtifact
from stages.trackers import TensorboardTracker, WandbTracker

Load = Callable[..., Pipeline]
Errors = Callable[..., list[str]]

PROMOTE = {
    "  gate:\n    gate: eval\n": """\
  approve:
    gate: human
    needs: [gate]
    ask: {approvers: [ml-leads], timeout: 7d}
  promote:
    action: set_alias
    needs: [approve]
    if: "${params.seed} == 7"
    inputs: {checkpoint: "${stages.sft.outputs.checkpoint}", report: "${stages.eval_sft.outputs.report}"}
    with: {alias: prod}
  gate:
    gate: eval
    on_fail: ask
    if: "${stages.eval_sft.outputs.report.accuracy} > ${stages.eval_base.outputs.report.accuracy}"
""",
    "'${stages.eval_base.outputs.report}'": "'${aliases.prod}'",
}


def stage(pipeline: Pipeline, node: str) -> StageNode:
    found = pipeline.nodes[node]
    assert isinstance(found, StageNode)
    return found


def test_a_human_gate_and_an_action_are_nodes_in_the_order_of_their_needs(load: Load) -> None:
    pipeline = load(replace=PROMOTE)
    assert list(pipeline.nodes)[-3:] == ["gate", "approve", "promote"]
    approve, promote = pipeline.nodes["approve"], pipeline.nodes["promote"]
    assert isinstance(approve, HumanGateNode)
    assert (approve.needs, approve.approvers, approve.timeout) == (("gate",), ("ml-leads",), 7 * 86400.0)
    assert isinstance(promote, ActionNode)
    assert promote.action == SetAlias("prod")
    assert promote.inputs == {
        "checkpoint": (StageOutput("sft", "checkpoint", ModelArtifact),),
        "report": (StageOutput("eval_sft", "report", ReportArtifact),),
    }
    assert set(promote.needs) == {"sft", "eval_sft", "approve"}


def test_a_condition_on_parameters_looks_at_no_report_and_one_on_a_report_needs_its_stage(load: Load) -> None:
    pipeline = load(replace=PROMOTE)
    promote, gate = pipeline.nodes["promote"], pipeline.nodes["gate"]
    assert promote.condition is not None
    assert (promote.condition.text, promote.condition.reports) == ("7 == 7", ())
    assert isinstance(gate, GateNode)
    assert gate.condition is not None
    assert [output.reference for output in gate.condition.reports] == [
        OutputReference("eval_sft", "report"),
        OutputReference("eval_base", "report"),
    ]
    assert set(gate.needs) == {"eval_sft", "eval_base"}
    assert gate.on_fail == "ask"


def test_a_gate_compares_with_the_report_of_an_alias(load: Load) -> None:
    gate = load(replace=PROMOTE).nodes["gate"]
    assert isinstance(gate, GateNode)
    requirement = gate.require[1]
    assert [(type(output), output.reference) for output in requirement.reports] == [
        (AliasOutput, AliasReference("prod"))
    ]
    assert [leaf.report for leaf in leaves(requirement.expression) if isinstance(leaf, Delta)] == [
        AliasReference("prod")
    ]


def test_a_stage_takes_the_model_of_an_alias(load: Load) -> None:
    model = stage(load(replace={"${params.base_model}": "${aliases.prod-2}"}), "sft").inputs["model"]
    assert isinstance(model, AliasOutput)
    assert (model.alias, model.artifact) == ("prod-2", ModelArtifact)


def test_a_stage_works_without_an_optional_input_and_takes_it_where_it_is_given(load: Load) -> None:
    assert "validation" not in stage(load(), "sft").inputs
    given = {'dataset: "${stages.data': 'validation: "${stages.data.outputs.validation}", dataset: "${stages.data'}
    assert stage(load(replace=given), "sft").inputs["validation"] == StageOutput("data", "validation", DatasetArtifact)


def test_text_in_a_condition_is_quoted_unless_it_stands_in_quotes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_TEST_MODE", "it's fast")
    declared = {"  base_model": "  mode: {type: str, default: fast}\n  on: {type: bool, default: true}\n  base_model"}
    for written, text in (
        ("${params.mode} == 'fast'", "'fast' == 'fast'"),
        ("'${params.mode}' != 'slow'", "'fast' != 'slow'"),
        ("'very ${params.mode}' != 'slow'", "'very fast' != 'slow'"),
        ("${params.on}", "true"),
        ("${env.TEMPER_TEST_MODE} == 'x'", "\"it's fast\" == 'x'"),
    ):
        condition = stage(load(replace=declared | {"uses: sft": f'uses: sft\n    if: "{written}"'}), "sft").condition
        assert condition is not None
        assert condition.text == text


def test_every_section_of_a_stage_reaches_its_node(load: Load) -> None:
    pipeline = load(
        replace={
            "stages:\n": """\
defaults:
  retry: {on: [infra], on_oom: {train_micro_batch: /2}}
  cache: {mode: refresh}
  resume: {policy: fresh, every: 5m}
stages:
""",
            "    uses: sft\n": """\
    uses: sft
    on_conflict: takeover
    cache: {mode: off}
    resume: {keep_last: 3, keep_every: 100}
    resources: {accelerator: cpu, count: 2, num_processes: 2, pool: big, env: {A: "x${params.seed}", B: secret://b}}
""",
        }
    )
    sft = stage(pipeline, "sft")
    assert (sft.on_conflict, sft.cache) == ("takeover", "off")
    assert sft.resume == Resume("fresh", 300.0, 3, 100)
    assert (sft.resources.count, sft.resources.num_processes, sft.resources.pool) == (2, 2, "big")
    assert sft.resources.env == {"A": "x7", "B": "secret://b"}
    assert (sft.retry.on, sft.retry.on_oom) == (("infra", "oom"), {"train_micro_batch": 2})
    data = stage(pipeline, "data")
    assert (data.cache, data.resume.policy, data.on_conflict) == ("refresh", "fresh", "wait")
    assert (data.retry.on, data.retry.on_oom) == (("infra",), {})


def test_a_schedule_and_notices_are_read(load: Load) -> None:
    head = (
        "profiles: {short: {notify: null}}\n"
        'schedule: {cron: "0 2 * * SUN", timezone: Europe/Berlin, profile: short, overlap: queue, params: {seed: 3}}\n'
        "notify: {on: [failed, gate_waiting], to: secret://notify_url}\nstages:\n"
    )
    pipeline = load(replace={"stages:\n": head})
    assert pipeline.schedule == Schedule("0 2 * * SUN", "Europe/Berlin", "short", {"seed": 3}, "queue")
    assert pipeline.notify == Notify(("failed", "gate_waiting"), "secret://notify_url")
    assert load(profile="short", replace={"stages:\n": head}).notify is None


def test_trackers_are_read_and_a_profile_may_do_without_one(load: Load, pipeline_file: Path) -> None:
    head = (
        "profiles: {short: {trackers: {wandb: null, tensorboard: {folder: /elsewhere}}}}\n"
        'trackers: {tensorboard: {folder: curves}, wandb: {project: "of-${params.team}"}}\nstages:\n'
    )
    replace = {"stages:\n": head, "params:\n": "params:\n  team: {type: str, default: red}\n"}
    trackers = load(replace=replace).trackers
    assert trackers.tensorboard == TensorboardTracker(folder=str(pipeline_file.parent / "curves"))
    assert trackers.wandb == WandbTracker(project="of-red")
    assert load(profile="short", replace=replace).trackers.chosen == (TensorboardTracker(folder="/elsewhere"),)
    assert load().trackers.chosen == ()


def test_a_fault_within_a_time_is_told_once(load: Load) -> None:
    with pytest.raises(SpecError) as raised:
        load(replace={"stages:\n": 'schedule: {cron: "61 * * * *"}\nstages:\n'})
    assert str(raised.value).endswith(": schedule.cron: minute: expected 0 to 59, not `61`")


def test_the_environment_may_stand_where_nothing_depends_on_it(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_TEST_TEAM", "red")
    text = "name: small\ndescription: of ${env.TEMPER_TEST_TEAM}\nstore: gs://${env.TEMPER_TEST_TEAM}/x"
    pipeline = load(replace={"name: small": text})
    assert (pipeline.description, pipeline.store) == ("of red", "gs://red/x")


def test_values_of_the_run_stay_until_there_is_one(load: Load) -> None:
    env = {"uses: sft": 'uses: sft\n    resources: {env: {RUN: "$${x}/${run.id}-${params.seed}"}}'}
    assert stage(load(replace=env), "sft").resources.env == {"RUN": "$${x}/${run.id}-7"}


def top(text: str) -> dict[str, str]:
    return {"stages:\n": f"{text}\nstages:\n"}


def of_sft(text: str) -> dict[str, str]:
    return {"    uses: sft\n": f"    uses: sft\n    {text}\n"}


def node(text: str) -> dict[str, str]:
    return {"  gate:\n": f"  x: {text}\n  gate:\n"}


CASES: dict[str, tuple[dict[str, str], str]] = {
    "an unknown action": (
        node("{action: set_alas}"),
        "27:7: stages.x.action: unknown kind of action `set_alas` (did you mean `set_alias`?)",
    ),
    "an unknown gate": (
        node("{gate: robot}"),
        "27:7: stages.x.gate: unknown kind of gate `robot`; known are `eval`, `human`",
    ),
    "a gate that is fanned out": (
        {"    gate: eval\n": "    gate: eval\n    matrix: {a: [1]}\n"},
        "29:5: stages.gate.matrix: unknown key",
    ),
    "an action for each": (
        node("{action: set_alias, for_each: sft, inputs: {checkpoint: x}, with: {alias: a}}"),
        "27:26: stages.x.for_each: unknown key",
    ),
    "a human gate that asks about nothing": (
        node("{gate: human}"),
        "27:3: stages.x.needs: required, but missing",
    ),
    "a question about what is never the same twice": (
        {"    uses: sft\n": "    uses: sft\n    cache: {mode: off}\n"} | node("{gate: human, needs: [gate]}"),
        "28:3: stages.x: asks about results that come of `sft`, which `cache: {mode: off}` makes again each time",
    ),
    "a bad alias": (
        node('{action: set_alias, inputs: {checkpoint: "${stages.sft.outputs.checkpoint}"}, with: {alias: a/b}}'),
        '27:91: stages.x.with.alias: expected letters, digits, `_`, `.` and `-`, first a letter or digit, not "a/b"',
    ),
    "an alias for a path": (
        node("{action: set_alias, inputs: {checkpoint: base}, with: {alias: a}}"),
        "27:35: stages.x.inputs.checkpoint: takes a model from a stage, such as `${stages.ID.outputs.NAME}`, not",
    ),
    "an alias for a report": (
        node('{action: set_alias, inputs: {checkpoint: "${stages.eval_sft.outputs.report}"}, with: {alias: a}}'),
        "27:35: stages.x.inputs.checkpoint: takes a model, but `stages.eval_sft.outputs.report` is a report",
    ),
    "an output of an action that has none": (
        node(
            '{action: set_alias, inputs: {checkpoint: "${stages.sft.outputs.checkpoint}"}, with: {alias: a}}\n'
            '  y: {gate: eval, require: ["a > 0"], inputs: {report: "${stages.x.outputs.report}"}}'
        ),
        "28:48: stages.y.inputs.report: `x` is an action and has no outputs",
    ),
    "a dataset of an alias": (
        {"${stages.data.outputs.train}": "${aliases.prod}"},
        "12:45: stages.sft.inputs.dataset: takes a dataset, but an alias stands for a model and its report",
    ),
    "an alias in the settings": (
        {"num_steps: 4": 'num_steps: "${aliases.prod}"'},
        "16:7: stages.sft.with.num_steps: `${aliases.prod}` can only be an input of a stage or gate",
    ),
    "a metric of no report in `if`": (
        of_sft("if: accuracy > 0"),
        "12:5: stages.sft.if: column 1: `accuracy` of which report? Here a metric is",
    ),
    "a condition that is no text": (of_sft("if: 3"), "12:5: stages.sft.if: should be a valid string, not 3"),
    "a metric of a model": (
        {"uses: evaluation": 'uses: evaluation\n    if: "${stages.sft.outputs.checkpoint.x} > 0"'},
        "21:5: stages.eval_base.if: takes a report, but `stages.sft.outputs.checkpoint` is a model",
    ),
    "a stage that waits for its own report": (
        of_sft('if: "${stages.eval_sft.outputs.report.accuracy} > 0"'),
        "12:5: stages.sft.if: stages wait for each other: sft → eval_sft → sft",
    ),
    "a metric outside conditions": (
        {"num_steps: 4": 'num_steps: "${stages.data.outputs.report.x}"'},
        "16:7: stages.sft.with.num_steps: `${stages.data.outputs.report.x}` can only stand in `if` and `require`",
    ),
    "a cell outside of fan-out": (
        {"num_steps: 4": 'num_steps: "${matrix.steps}"'},
        "16:7: stages.sft.with.num_steps: `${matrix.steps}`: `sft` has no `matrix`",
    ),
    "a cell outside of stages": (
        {"name: small": 'name: small\ndescription: "${matrix.x}"'},
        "3:1: description: `${matrix.x}` can only stand in a stage",
    ),
    "a quote in a condition": (
        {"  base_model": '  mode: {type: str, default: "it\'s"}\n  base_model'}
        | of_sft("if: \"'${params.mode}' == 'x'\""),
        "13:5: stages.sft.if: a text with a quote in it cannot stand in a condition: it's",
    ),
    "the environment in the settings": (
        {"num_steps: 4": 'num_steps: "${env.HOME}"'},
        "16:7: stages.sft.with.num_steps: `${env.HOME}` cannot stand in `with`, which is the same for everybody",
    ),
    "the environment in an input": (
        {"${params.base_model}": "${env.HOME}"},
        "12:14: stages.sft.inputs.model: `${env.HOME}` cannot stand in `inputs`, which is the same for everybody",
    ),
    "a variable that is not set": (
        {"name: small": "name: small\ndescription: x${env.TEMPER_TEST_NOWHERE}"},
        "3:1: description: the environment has no variable `TEMPER_TEST_NOWHERE`",
    ),
    "a run where there is none": (
        {"name: small": "name: small\ndescription: x${run.id}"},
        (
            "3:1: description: `${run.id}` has a value only while a run goes on: it can stand in `resources.env` "
            "and in `notify.to`"
        ),
    ),
    "a secret in the settings": (
        {"source: rows.jsonl": "source: secret://rows"},
        "9:12: stages.data.with.source: `secret://rows` can stand in `resources.env` and in `notify.to` only",
    ),
    "a secret in an input, by way of a parameter": (
        {"  base_model": "  hidden: {type: str, default: secret://base}\n  base_model"}
        | {'model: "${params.base_model}"': 'model: "${params.hidden}"'},
        "13:14: stages.sft.inputs.model: `secret://base` can stand in `resources.env` and in `notify.to` only",
    ),
    "a secret without a name": (
        top("notify: {on: [failed], to: secret://}"),
        "6:24: notify.to: expected secret:// and a name, not `secret://`",
    ),
    "a notice to no address": (
        top("notify: {on: [failed], to: me}"),
        '6:24: notify.to: expected a URL, or secret:// and the name of one, not "me"',
    ),
    "a notice of something else": (
        top("notify: {on: [fail], to: json://x}"),
        "6:15: notify.on.0: should be 'failed', 'gate_waiting' or 'succeeded', not \"fail\" (did you mean `failed`?)",
    ),
    "a secret for a tracker": (
        top("trackers: {mlflow: {uri: secret://uri, experiment: e}}"),
        "6:21: trackers.mlflow.uri: `secret://uri` can stand in `resources.env` and in `notify.to` only",
    ),
    "runs kept offline, but nowhere": (
        top("trackers: {wandb: {project: p, mode: offline}}"),
        "6:12: trackers.wandb: mode offline needs a `folder` that the runs are kept in",
    ),
    "an unknown tracker": (
        top("trackers: {tensorbord: {folder: f}}"),
        "6:12: trackers.tensorbord: unknown key (did you mean `tensorboard`?)",
    ),
    "a schedule that never fires": (
        top('schedule: {cron: "0 2 31 2 *"}'),
        '6:12: schedule.cron: never fires: no such month has a day 31, not "0 2 31 2 *"',
    ),
    "a time zone that does not exist": (
        top('schedule: {cron: "0 2 * * *", timezone: Europe/Bärlin}'),
        "6:31: schedule.timezone: expected a time zone such as UTC or Europe/Berlin, not ",
    ),
    "a schedule of an unknown profile": (
        top('profiles: {short: {}}\nschedule: {cron: "0 2 * * *", profile: shrot}'),
        "7:31: schedule.profile: unknown profile `shrot` (did you mean `short`?)",
    ),
    "a schedule with an unknown parameter": (
        top('schedule: {cron: "0 2 * * *", params: {sead: 3}}'),
        "6:40: schedule.params.sead: unknown parameter `sead` (did you mean `seed`?)",
    ),
    "a schedule with a parameter of another type": (
        top('schedule: {cron: "0 2 * * *", params: {seed: x}}'),
        '6:40: schedule.params.seed: expected a whole number, not "x"',
    ),
    "a setting that cannot be divided for want of memory": (
        of_sft("retry: {on_oom: {batch_size: /2}}"),
        "12:22: stages.sft.retry.on_oom.batch_size: no whole number that changes how a stage runs but not its result",
    ),
    "a setting that no kind divides": (
        top("defaults: {retry: {on_oom: {train_micro_bath: /2}}}"),
        (
            "6:29: stages.data.retry.on_oom.train_micro_bath: no whole number that changes how a stage runs but not "
            "its result (did you mean `train_micro_batch`?)"
        ),
    ),
    "a division that is none": (
        of_sft("retry: {on_oom: {train_micro_batch: 2}}"),
        "12:22: stages.sft.retry.on_oom.train_micro_batch: expected a division such as /2, not 2",
    ),
    "a bad name of a variable": (
        of_sft("resources: {env: {A-B: x}}"),
        "12:23: stages.sft.resources.env.A-B: expected letters, digits and `_`, first no digit",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_gives_one_line_with_its_place(case: str, errors: Errors) -> None:
    replace, message = CASES[case]
    found = errors(replace=replace)
    assert len(found) == 1, found
    assert found[0].startswith(message), found[0]
