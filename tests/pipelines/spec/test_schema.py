import copy
import json

import jsonschema
import pytest
from pydantic import JsonValue

from pipelines.spec.diagnostics import Place, Problems
from pipelines.spec.schema import SCHEMA_FILE, pipeline_schema, schema_text
from pipelines.spec.tree import to_plain
from pipelines.spec.yaml_text import read_yaml
from stages.catalog import STAGES

SMOKE = SCHEMA_FILE.with_name("smoke.yaml")


def plain() -> dict[str, JsonValue]:
    tree = read_yaml(SMOKE.read_text(), lambda _line, _column: Place("f"), Problems())
    assert tree is not None
    value = to_plain(tree)
    assert isinstance(value, dict)
    return value


def put(value: dict[str, JsonValue], path: str, leaf: JsonValue) -> dict[str, JsonValue]:
    changed = copy.deepcopy(value)
    *parents, last = path.split(".")
    inner: JsonValue = changed
    for key in parents:
        assert isinstance(inner, dict)
        inner = inner.setdefault(key, {})
    assert isinstance(inner, dict)
    inner[last] = leaf
    return changed


def test_the_file_is_what_the_catalog_gives() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), "run python -m pipelines.spec.schema"


def test_it_is_a_schema_with_a_branch_for_each_kind_of_stage() -> None:
    schema = pipeline_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    assert {f"stage.{kind}" for kind in STAGES} <= set(definitions)


@pytest.mark.parametrize(
    ("path", "value", "valid"),
    [
        ("stages.sft.with.num_steps", "${params.steps}", True),
        ("stages.sft.with.num_steps", "x${params.steps}", False),
        ("stages.sft.with.num_steps", "3", False),
        ("stages.sft.with.num_steps", 0, False),
        ("stages.sft.with.num_stepz", 3, False),
        ("stages.sft.with.model.lora.rank", "${params.rank}", True),
        ("stages.grpo.with.advantages", "rloo", True),
        ("stages.grpo.with.advantages", "ppo", False),
        ("stages.sft.timeout", {"total": "20m"}, True),
        ("stages.sft.timeout", {"total": "20 minutes"}, False),
        ("stages.sft.inputs.teacher", "x", False),
        ("stages.sft.uses", "stf", False),
        ("stages.gate.on_fail", "ask", True),
        ("stages.gate.on_fail", "go", False),
        ("stages.gate.gate", "evil", False),
        ("stages.approve", {"gate": "human", "needs": ["gate"], "ask": {"timeout": "7d"}}, True),
        ("stages.approve", {"gate": "human"}, False),
        ("stages.best", {"action": "select_best", "inputs": {"candidates": "x", "reports": ["x"]}}, False),
        (
            "stages.best",
            {"action": "select_best", "inputs": {"candidates": "x", "reports": ["x"]}, "with": {"metric": "kl"}},
            True,
        ),
        ("stages.promote", {"action": "set_alias", "inputs": {"checkpoint": "x"}, "with": {"alias": "prod"}}, True),
        ("stages.promote", {"action": "promote", "inputs": {"checkpoint": "x"}}, False),
        ("stages.sft.matrix", {"lr": [1e-3, "${params.rate}"]}, True),
        ("stages.sft.matrix", {"lr": []}, False),
        ("stages.sft.matrix", {"lr": 3}, False),
        ("stages.sft.with.num_steps", "${matrix.steps}", True),
        ("stages.sft.for_each", "data", True),
        ("stages.sft.if", "${params.seed} == 17", True),
        ("stages.sft.max_parallel", 0, False),
        ("stages.sft.retry", {"on_oom": {"train_micro_batch": "/2"}}, True),
        ("stages.sft.retry", {"on_oom": {"train_micro_batch": 2}}, False),
        ("stages.sft.resources", {"env": {"A": "secret://a"}, "count": 2, "pool": "tpu"}, True),
        ("stages.sft.cache", {"mode": "never"}, False),
        ("stages.sft.on_conflict", "takeover", True),
        ("defaults.resume", {"policy": "fresh", "every": "5m", "keep_every": 100}, True),
        ("defaults.retry.on", ["oom"], True),
        ("defaults.matrix", {}, False),
        ("profiles.short.stages.sft.with.num_steps", 1, True),
        ("profiles.short.stages.sft.with.model.lora.rank", 1, True),
        ("profiles.short.stages.sft.with.num_stepz", 1, False),
        ("profiles.short.params.seed", 1, True),
        ("profiles.short.name", "other", False),
        ("schedule", {}, False),
        ("schedule", {"cron": "0 2 * * SUN", "overlap": "queue"}, True),
        ("notify", {"on": ["failed"], "to": "secret://url"}, True),
        ("profiles.short.notify", {"on": ["failed"]}, True),
        ("trackers", {"tensorboard": {"folder": "curves"}, "wandb": {"project": "p", "mode": "offline"}}, True),
        ("trackers", {"wandb": {}}, False),
        ("trackers", {"neptune": {"project": "p"}}, False),
        ("profiles.short.trackers", {"wandb": {"mode": "offline"}}, True),
        ("profiles.short.schedule", {"cron": "0 2 * * SUN"}, False),
    ],
)
def test_values_are_accepted_as_the_loader_accepts_them(path: str, value: JsonValue, valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    assert validator.is_valid(plain())
    assert validator.is_valid(put(plain(), path, value)) == valid


def test_a_file_that_extends_another_says_as_little_as_it_likes() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    child: dict[str, JsonValue] = {"version": 1, "name": "child"}
    assert not validator.is_valid(child)
    child["extends"] = "smoke.yaml"
    assert validator.is_valid(child)
    assert validator.is_valid(put(child, "stages.sft.with.num_steps", 3))
    assert not validator.is_valid(put(child, "stages.sft.with.num_stepz", 3))
