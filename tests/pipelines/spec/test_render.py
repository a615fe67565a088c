"""A resolved pipeline as text: it says where each value was written, and is a pipeline itself."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.diagnostics import Problems
from pipelines.spec.extends import read_with_bases
from pipelines.spec.load import load_pipeline, load_with_text
from pipelines.spec.nodes import ExternalSource, Pipeline, StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.render import render, render_json
from pipelines.spec.tree import Table
from stages.sources.resolve import absolute
from stages.store.memory import MemoryStore

SHIPPED = sorted((Path(__file__).parents[3] / "pipelines").glob("*.yaml"))

FULL = {
    "version: 1\n": "version: 1\ndescription: of $${x} and ${env.TEMPER_TEST_TEAM}\n",
    "stages:\n": """\
defaults: {retry: {max: 1, on_oom: {train_micro_batch: /2}}, resources: {env: {RUN: "$${x}${run.id}"}}}
schedule: {cron: "0 2 * * *", profile: short, params: {seed: 9}}
notify: {on: [failed], to: secret://url}
trackers: {tensorboard: {folder: curves}}
profiles:
  short: {stages: {sft: {with: {batch_size: 4}, matrix: {lr: [1e-3, 1e-2]}}}}
stages:
""",
    "    uses: sft\n": '    uses: sft\n    max_parallel: 1\n    matrix: {lr: [1e-3]}\n    if: "${params.seed} == 7"\n',
    "learning_rate: 1e-3": 'learning_rate: "${matrix.lr}"',
    "source: rows.jsonl": 'source: rows.jsonl, system_prompt: "as $${x}: \\u2028 y"',
    "${params.base_model}": "${aliases.prod}",
    "  eval_sft:\n    uses: evaluation\n": """\
  eval_sft:
    uses: evaluation
    for_each: sft
    if: "${each.matrix.lr} < 1"
""",
    "${stages.sft.outputs.checkpoint}": "${each.outputs.checkpoint}",
    "  gate:\n": """\
  best:
    action: select_best
    inputs: {candidates: "${stages.sft[*].outputs.checkpoint}", reports: ["${stages.eval_sft[*].outputs.report}"]}
    with: {metric: accuracy}
  ask: {gate: human, needs: [best]}
  gate:
""",
    'report: "${stages.eval_sft.outputs.report}"': 'report: "${stages.best.outputs.report}"',
    "'${stages.eval_base.outputs.report}'": "'${aliases.prod}'",
}


@pytest.fixture(autouse=True)
def team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_TEST_TEAM", "red")


def identity(pipeline: Pipeline) -> dict[str, object]:
    """All that keys depend on, by stage, and what the other nodes are."""
    found: dict[str, object] = {}
    for name, node in pipeline.nodes.items():
        if not isinstance(node, StageNode):
            found[name] = (type(node), node.needs, node.condition and node.condition.text)
            continue
        inputs = {
            key: absolute(value.uri, pipeline.path.parent) if isinstance(value, ExternalSource) else value.reference
            for key, value in node.inputs.items()
        }
        found[name] = (node.kind, node.rev, node.config, inputs, node.retry, node.resources, node.timeout, node.needs)
    return found


def rendered(path: Path, profile: str | None, overrides: tuple[str, ...], folder: Path) -> Pipeline:
    """The pipeline that the printed text is, in another folder."""
    other = folder / "elsewhere" / "rendered.yaml"
    other.parent.mkdir(exist_ok=True)
    other.write_text(render(load_with_text(path, profile, overrides), profile))
    return load_pipeline(other)


def variants(path: Path) -> list[str | None]:
    profiles = read_with_bases(path, Problems()).get("profiles")
    return [None, *(profiles.entries if isinstance(profiles, Table) else ())]


@pytest.mark.parametrize(("path", "profile"), [(path, name) for path in SHIPPED for name in variants(path)])
def test_a_shipped_pipeline_printed_and_loaded_again_is_the_same(
    path: Path, profile: str | None, tmp_path: Path
) -> None:
    pipeline, again = load_pipeline(path, profile), rendered(path, profile, (), tmp_path)
    assert identity(again) == identity(pipeline)
    assert (again.name, again.description, again.store) == (pipeline.name, pipeline.description, pipeline.store)


@pytest.mark.parametrize("profile", [None, "short"])
def test_all_that_a_file_can_say_is_printed_so_that_it_can_be_read(
    profile: str | None, load: Callable[..., Pipeline], pipeline_file: Path, tmp_path: Path
) -> None:
    pipeline = load(profile=profile, replace=FULL)
    again = rendered(pipeline_file, profile, (), tmp_path)
    assert identity(again) == identity(pipeline)
    assert (again.description, again.store, again.notify) == ("of ${x} and red", pipeline.store, pipeline.notify)
    assert again.trackers == pipeline.trackers
    assert again.schedule is not None
    assert (again.schedule.cron, again.schedule.profile, again.schedule.params) == ("0 2 * * *", None, {})


def test_keys_are_the_same_wherever_the_text_lies(
    load: Callable[..., Pipeline], pipeline_file: Path, tmp_path: Path
) -> None:
    overrides = ("params.seed=3", "stages.sft.with.num_steps=5")
    load()
    again = rendered(pipeline_file, None, overrides, tmp_path)
    plans = [make_plan(one, MemoryStore("x")) for one in (load_pipeline(pipeline_file, None, overrides), again)]
    keys = [{node: planned.key for node, planned in plan.nodes.items()} for plan in plans]
    assert keys[0] == keys[1]
    assert all(keys[0][stage] is not None for stage in ("data", "sft", "eval_base", "eval_sft"))


def test_every_value_says_where_it_was_written(load: Callable[..., Pipeline], pipeline_file: Path) -> None:
    load(profile="short", replace=FULL)
    text = render(load_with_text(pipeline_file, "short", ("params.seed=7", "stages.sft.rev=2")), "short")
    lines = [line.strip().replace(str(pipeline_file), "small.yaml") for line in text.splitlines()]
    for line in (
        "# seed: 7  # --set params.seed=7",
        "# base_model: base  # small.yaml:6",
        'description: "of $${x} and red"  # small.yaml:2',
        "matrix:",
        "lr: [0.001, 0.01]  # small.yaml:12 (profile short)",
        "batch_size: 4  # small.yaml:12 (profile short)",
        'learning_rate: "${matrix.lr}"  # small.yaml:25',
        "num_steps: 4  # small.yaml:26",
        "seed: 7  # --set params.seed=7",
        "rev: 2  # --set stages.sft.rev=2",
        'model: "${aliases.prod}"  # small.yaml:22',
        "max: 1  # small.yaml:7",
        "weight_decay: 0.0  # default",
        "mode: max  # default",
        "timeout: 604800.0  # default",
    ):
        assert line in lines, line


def test_json_has_the_values_and_their_places_apart(load: Callable[..., Pipeline], pipeline_file: Path) -> None:
    load()
    found = json.loads(render_json(load_with_text(pipeline_file, None, ("params.seed=3",)), None))
    assert found["pipeline"]["stages"]["sft"]["with"]["seed"] == 3
    assert found["origins"]["stages.sft.with.seed"] == "--set params.seed=3"
    assert found["origins"]["stages.sft.with.num_steps"] == f"{pipeline_file}:16"
    assert found["origins"]["stages.sft.cache.mode"] == "default"
