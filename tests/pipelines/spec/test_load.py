from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.spec.nodes import ExternalSource, GateNode, Pipeline, StageNode, StageOutput
from stages.contract import DatasetArtifact, ReportArtifact
from stages.prepare.config import PrepareConfig
from stages.sft.config import SftConfig

Load = Callable[..., Pipeline]
Errors = Callable[..., list[str]]


def stage(pipeline: Pipeline, node: str) -> StageNode:
    found = pipeline.nodes[node]
    assert isinstance(found, StageNode)
    return found


def sft_config(pipeline: Pipeline) -> SftConfig:
    config = stage(pipeline, "sft").config
    assert isinstance(config, SftConfig)
    return config


PROFILES = """\
  short:
    params: {seed: 3}
    stages:
      sft:
        with: {num_steps: 2}
"""


def with_profiles(text: str) -> dict[str, str]:
    return {"stages:\n": f"profiles:\n{text}stages:\n"}


# --- what a pipeline becomes ---------------------------------------------------------------------


def test_a_pipeline_becomes_typed_nodes(load: Load, pipeline_file: Path) -> None:
    pipeline = load()
    assert list(pipeline.nodes) == ["data", "sft", "eval_base", "eval_sft", "gate"]
    assert pipeline.params == {"seed": 7, "base_model": "base"}
    sft = stage(pipeline, "sft")
    assert sft.inputs["dataset"] == StageOutput("data", "train", DatasetArtifact)
    model = sft.inputs["model"]
    assert isinstance(model, ExternalSource)
    assert model.uri == "base"
    assert sft.needs == ("data",)
    assert sft_config(pipeline).seed == 7
    gate = pipeline.nodes["gate"]
    assert isinstance(gate, GateNode)
    assert gate.needs == ("eval_sft", "eval_base")
    assert gate.reports == (
        StageOutput("eval_sft", "report", ReportArtifact),
        StageOutput("eval_base", "report", ReportArtifact),
    )


def test_nodes_are_put_in_an_order_in_which_they_can_run(load: Load) -> None:
    pipeline = load(replace={"    with: {source: rows": "    needs: [eval_x]\n    with: {source: rows"} | EXTRA)
    assert list(pipeline.nodes)[:3] == ["prep_x", "eval_x", "data"]


EXTRA = {
    "  gate:\n": """\
  prep_x:
    uses: prepare
    with: {source: other.jsonl, num_train: 1, num_held_out: 1, seed: 1}
  eval_x:
    uses: evaluation
    inputs: {model: base, dataset: "${stages.prep_x.outputs.held_out}"}
    with: {sampling: {temperature: 0, max_response_tokens: 4}}
  gate:
"""
}


def test_a_relative_source_in_the_settings_becomes_absolute(load: Load, pipeline_file: Path) -> None:
    config = stage(load(), "data").config
    assert isinstance(config, PrepareConfig)
    assert config.source == str(pipeline_file.parent / "rows.jsonl")


def test_a_whole_reference_keeps_its_type_and_an_embedded_one_makes_text(load: Load) -> None:
    embedded = {"source: rows.jsonl": 'source: "rows-${params.seed}.jsonl"'}
    config = stage(load(replace=embedded), "data").config
    assert isinstance(config, PrepareConfig)
    assert isinstance(config.source, str)
    assert config.source.endswith("/rows-7.jsonl")
    assert config.seed == 7


def test_an_int_is_taken_where_a_float_param_is_declared(load: Load) -> None:
    declared = {
        "  base_model": "  rate: {type: float, default: 1}\n  base_model",
        "learning_rate: 1e-3": 'learning_rate: "${params.rate}"',
    }
    assert sft_config(load(replace=declared)).optimizer.learning_rate == 1.0


def test_defaults_are_merged_under_every_stage_and_a_stage_may_differ(load: Load) -> None:
    pipeline = load(
        replace={
            "stages:\n": "defaults: {retry: {max: 5, delay: [1, 2m]}, timeout: {total: 90s}}\nstages:\n",
            "    uses: sft\n": "    uses: sft\n    retry: {max: 0, preempted: {max: 1}}\n    timeout: {grace: 0.5}\n",
        }
    )
    assert (stage(pipeline, "data").retry.max, stage(pipeline, "sft").retry.max) == (5, 0)
    assert stage(pipeline, "sft").retry.delay == (1.0, 120.0)
    assert stage(pipeline, "sft").retry.preempted_max == 1
    assert stage(pipeline, "sft").timeout.total == 90.0
    assert stage(pipeline, "sft").timeout.grace == 0.5


def test_the_store_is_beside_the_project_mark_unless_the_file_says_where(load: Load, pipeline_file: Path) -> None:
    project = pipeline_file.parent
    assert load().store == str(project / ".temper" / "store")
    assert load(replace={"name: small": "name: small\nstore: results"}).store == str(project / "results")
    assert load(replace={"name: small": "name: small\nstore: gs://b/c"}).store == "gs://b/c"
    assert load(replace={"name: small": 'name: small\nstore: "out-${params.seed}"'}).store == str(project / "out-7")


# --- profiles and overrides ----------------------------------------------------------------------


def test_a_profile_is_merged_deeply_and_may_set_params(load: Load) -> None:
    changed = sft_config(load(profile="short", replace=with_profiles(PROFILES)))
    assert (changed.num_steps, changed.batch_size, changed.seed) == (2, 8, 3)
    assert sft_config(load(replace=with_profiles(PROFILES))).num_steps == 4


def test_an_override_is_applied_over_the_profile_and_read_as_yaml(load: Load) -> None:
    pipeline = load(
        "stages.sft.with.num_steps=0x10",
        "params.seed=5",
        "stages.sft.with.optimizer={warmup_steps: 1}",
        "stages.data.with.system_prompt=null",
        profile="short",
        replace=with_profiles(PROFILES),
    )
    assert (sft_config(pipeline).num_steps, sft_config(pipeline).seed) == (16, 5)
    assert sft_config(pipeline).optimizer.learning_rate == 1e-3
    assert sft_config(pipeline).optimizer.warmup_steps == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.sft.with.num_steps", "expected PATH=VALUE"),
        ("=3", "expected PATH=VALUE"),
        ("stages..with=3", "expected PATH=VALUE"),
        ("stages.sft.with.num_steps=", "stages.sft.with.num_steps: a value is missing after `=`"),
        ("stages.sft.with.num_steps=[", "not YAML"),
        ("stages.sft.with.num_steps=two", 'stages.sft.with.num_steps: should be a valid integer, not "two"'),
        ("stages.sft.with.num_stepz=2", "stages.sft.with.num_stepz: unknown key (did you mean `num_steps`?)"),
        ("stages.stf.with.num_steps=2", "stages.stf.with.num_steps: unknown stage `stf` (did you mean `sft`?)"),
        ("stages.sft.uses.x=2", "stages.sft.uses.x: `stages.sft.uses` holds no keys"),
        ("params.sed=2", "params.sed: unknown parameter `sed` (did you mean `seed`?)"),
        ("params.seed=x", 'params.seed.default: expected a whole number, not "x"'),
        ("params.seed=1.5", "params.seed.default: expected a whole number, not 1.5"),
        ("params.seed=true", "params.seed.default: expected a whole number, not true"),
        ("params.base_model=s3://x/y", "params.base_model.default: source 's3://x/y': unknown scheme 's3'"),
        ("profiles.short.params.seed=3", "a profile is chosen with --profile"),
        ("versoin=1", "versoin: unknown key (did you mean `version`?)"),
    ],
)
def test_a_bad_override_is_told_by_its_flag(override: str, message: str, errors: Errors) -> None:
    found = errors(override)
    assert len(found) == 1
    assert found[0].startswith(f"--set {override}: ")
    assert message in found[0]


def test_an_unknown_profile_is_told_by_its_flag(errors: Errors) -> None:
    assert errors(profile="shrot", replace=with_profiles(PROFILES)) == [
        "--profile shrot: unknown profile `shrot` (did you mean `short`?)"
    ]
    assert errors(profile="x") == ["--profile x: unknown profile `x`; the file has no profiles"]


def test_a_fault_in_a_profile_that_is_not_chosen_is_found_where_it_stands(errors: Errors) -> None:
    text = "  long:\n    stages: {sft: {with: {num_steps: 0}}}\n  bad:\n    stagse: {}\n"
    assert errors(replace=with_profiles(text)) == [
        "8:27: stages.sft.with.num_steps: should be greater than or equal to 1, not 0",
        "10:5: profiles.bad.stagse: unknown key (did you mean `stages`?)",
    ]


def test_a_fault_of_the_file_is_reported_once_however_many_profiles_there_are(errors: Errors) -> None:
    text = "  a: {params: {seed: 1}}\n  b: {params: {seed: 2}}\n"
    assert len(errors(replace={"num_steps: 4": "num_steps: x"} | with_profiles(text))) == 1


def test_a_param_without_a_default_is_set_for_every_profile(load: Load) -> None:
    required = {"{type: int, default: 7}": "{type: int}"}
    text = "  other: {stages: {sft: {with: {num_steps: 2}}}}\n"
    assert load("params.seed=3", replace=required | with_profiles(text)).params["seed"] == 3
