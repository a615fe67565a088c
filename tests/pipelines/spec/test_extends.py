"""A pipeline file over the one that it extends."""

from pathlib import Path

import pytest

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline, load_with_text
from pipelines.spec.nodes import ExternalSource, Pipeline, StageNode
from pipelines.spec.plan import make_plan
from pipelines.spec.render import render
from stages.prepare.config import PrepareConfig
from stages.sft.config import SftConfig
from stages.store.memory import MemoryStore

CHILD = """\
version: 1
name: child
extends: project/small.yaml
description: A smaller one.
params: {seed: 3}
stages:
  sft: {with: {num_steps: 2}}
"""


@pytest.fixture
def child(pipeline_file: Path) -> Path:
    """A file in the folder above that of the small pipeline."""
    path = pipeline_file.parents[1] / "child.yaml"
    path.write_text(CHILD)
    return path


def sft_config(pipeline: Pipeline) -> SftConfig:
    node = pipeline.nodes["sft"]
    assert isinstance(node, StageNode)
    assert isinstance(node.config, SftConfig)
    return node.config


def errors(path: Path) -> list[str]:
    with pytest.raises(SpecError) as raised:
        load_pipeline(path)
    return [str(diagnostic).replace(f"{path.parent}/", "") for diagnostic in raised.value.diagnostics]


def test_a_file_is_merged_deeply_over_the_one_that_it_extends(child: Path) -> None:
    pipeline = load_pipeline(child)
    assert (pipeline.name, pipeline.description, pipeline.path) == ("child", "A smaller one.", child)
    assert list(pipeline.nodes) == ["data", "sft", "eval_base", "eval_sft", "gate"]
    config = sft_config(pipeline)
    assert (config.num_steps, config.batch_size, config.seed) == (2, 8, 3)


def test_paths_are_relative_to_the_file_that_they_are_written_in(child: Path, pipeline_file: Path) -> None:
    pipeline = load_pipeline(child)
    data, sft = pipeline.nodes["data"], pipeline.nodes["sft"]
    assert isinstance(data, StageNode)
    assert isinstance(data.config, PrepareConfig)
    assert data.config.source == str(pipeline_file.parent / "rows.jsonl")
    assert isinstance(sft, StageNode)
    assert isinstance(sft.inputs["model"], ExternalSource)
    assert sft.inputs["model"].uri == str(pipeline_file.parent / "base")
    pipeline_file.write_text(f"store: results\n{pipeline_file.read_text()}")
    assert load_pipeline(child).store == str(pipeline_file.parent / "results")
    child.write_text(CHILD.replace("params: {seed: 3}", "params: {base_model: other}"))
    other = load_pipeline(child).nodes["sft"]
    assert isinstance(other, StageNode)
    assert isinstance(other.inputs["model"], ExternalSource)
    assert other.inputs["model"].uri == "other"


def test_what_is_the_same_has_the_same_keys_in_both(child: Path, pipeline_file: Path) -> None:
    child.write_text(CHILD.replace("params: {seed: 3}\n", ""))
    plans = [make_plan(load_pipeline(path), MemoryStore("x")) for path in (child, pipeline_file)]
    keys = [{node: planned.key for node, planned in plan.nodes.items()} for plan in plans]
    assert keys[0]["data"] == keys[1]["data"]
    assert keys[0]["eval_base"] == keys[1]["eval_base"]
    assert keys[0]["sft"] != keys[1]["sft"]


def test_profiles_are_merged_and_a_file_may_extend_one_that_extends_another(child: Path, pipeline_file: Path) -> None:
    text = pipeline_file.read_text()
    pipeline_file.write_text(f"{text}profiles:\n  short: {{stages: {{sft: {{with: {{num_steps: 1}}}}}}}}\n")
    grandchild = child.with_name("grandchild.yaml")
    grandchild.write_text(
        "version: 1\nname: grandchild\nextends: child.yaml\n"
        "profiles:\n  short: {stages: {sft: {with: {batch_size: 4}}}}\n"
    )
    config = sft_config(load_pipeline(grandchild, "short"))
    assert (config.num_steps, config.batch_size, config.seed) == (1, 4, 3)


def test_a_fault_is_told_of_the_file_that_it_stands_in(child: Path, pipeline_file: Path) -> None:
    pipeline_file.write_text(pipeline_file.read_text().replace("batch_size: 8", "batch_size: x"))
    child.write_text(CHILD.replace("num_steps: 2", "num_steps: y"))
    assert errors(child) == [
        'child.yaml:7:16: stages.sft.with.num_steps: should be a valid integer, not "y"',
        'project/small.yaml:17:7: stages.sft.with.batch_size: should be a valid integer, not "x"',
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: child\n", "", "child.yaml:1:1: name: required, but missing"),
        ("version: 1\n", "", "child.yaml:1:1: version: required, but missing"),
        ("project/small.yaml", "none.yaml", "child.yaml:3:1: extends: no such file: none.yaml"),
        ("project/small.yaml", "[a]", "child.yaml:3:1: extends: expected the path of a pipeline file"),
        ("project/small.yaml", "./child.yaml", "child.yaml:3:1: extends: files extend each other: child.yaml → child"),
        ("  sft:", "  stf:", "child.yaml:7:3: stages.stf: unknown stage `stf` (did you mean `sft`?)"),
        ("seed: 3", "seed: x", 'child.yaml:5:10: params.seed.default: expected a whole number, not "x"'),
    ],
)
def test_a_bad_child_gives_one_line(old: str, new: str, expected: str, child: Path) -> None:
    child.write_text(CHILD.replace(old, new))
    found = errors(child)
    assert found[0].startswith(expected), found
    assert len(found) == 1


def test_a_misspelt_extends_is_told_what_was_meant(child: Path) -> None:
    child.write_text(CHILD.replace("extends:", "extend:"))
    assert errors(child)[0] == "child.yaml:3:1: extend: unknown key (did you mean `extends`?)"


def test_a_base_of_another_version_is_refused(child: Path, pipeline_file: Path) -> None:
    text = pipeline_file.read_text()
    pipeline_file.write_text(text.replace("version: 1\n", "version: 2\n"))
    assert errors(child) == ["project/small.yaml:1:1: version: should be 1"]
    pipeline_file.write_text(text.replace("version: 1\n", ""))
    assert errors(child) == ["project/small.yaml:1:1: version: required, but missing"]


def test_what_comes_of_files_on_files_is_printed_with_the_file_of_each_value(child: Path, pipeline_file: Path) -> None:
    lines = [line.strip().replace(f"{child.parent}/", "") for line in render(load_with_text(child), None).splitlines()]
    for line in (
        "name: child  # child.yaml:2",
        "num_steps: 2  # child.yaml:7",
        "batch_size: 8  # project/small.yaml:17",
        "seed: 3  # child.yaml:5",
        "source: project/rows.jsonl  # project/small.yaml:9",
        "model: project/base  # project/small.yaml:5",
    ):
        assert line in lines, line
