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
        ("stages.gate.on_fail", "ask", False),
        ("defaults.retry.on", ["oom"], True),
        ("defaults.matrix", {}, False),
        ("profiles.short.stages.sft.with.num_steps", 1, True),
        ("profiles.short.stages.sft.with.model.lora.rank", 1, True),
        ("profiles.short.stages.sft.with.num_stepz", 1, False),
        ("profiles.short.params.seed", 1, True),
        ("profiles.short.name", "other", False),
        ("schedule", {}, False),
    ],
)
def test_values_are_accepted_as_the_loader_accepts_them(path: str, value: JsonValue, valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    assert validator.is_valid(plain())
    assert validator.is_valid(put(plain(), path, value)) == valid
