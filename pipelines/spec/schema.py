"""The JSON schema of pipeline files, for editors: `python -m pipelines.spec.schema` writes `pipelines/schema.json`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import JsonValue
from pydantic.json_schema import models_json_schema

from pipelines.spec.gate_sections import ACTIONS, GATES
from pipelines.spec.references import VALUE_PATTERN
from pipelines.spec.sections import PIPELINE_NAME_PATTERN, ParamSection, PipelineSection
from pipelines.spec.stage_sections import DefaultsSection, StageSection
from pipelines.spec.wiring import artifact_name
from stages.catalog import STAGES, Stage

SCHEMA_FILE = Path(__file__).parents[1] / "schema.json"

Schema = dict[str, JsonValue]

_REFERENCES: Mapping[str, JsonValue] = {
    "reference": {"type": "string", "pattern": f"^{VALUE_PATTERN}$"},
    "textWithReference": {"type": "string", "pattern": VALUE_PATTERN},
}
_DROPPED = ("title", "x-role")
_LEAF_TYPES = ("string", "number", "integer", "boolean")


def pipeline_schema() -> Schema:
    """The schema of a whole file; a leaf of a stage's settings is a value of its type or a reference."""
    definitions = _definitions()
    partial = {f"{name}.partial": _partial(definition) for name, definition in definitions.items()}
    head = _object(definitions["PipelineSection"], "properties")
    overlay: Schema = {
        "params": {"type": "object"},
        "defaults": _ref("DefaultsSection.partial"),
        "notify": _partial(head["notify"]),
        "trackers": _partial(head["trackers"]),
        "stages": {"type": "object", "additionalProperties": _any_of([*_node_names(".partial")])},
    }
    profile: Schema = {**{name: head[name] for name in ("description", "store")}, **overlay}
    whole: Schema = {
        "params": {"type": "object", "additionalProperties": _ref("ParamSection")},
        "defaults": _ref("DefaultsSection"),
        "notify": head["notify"],
        "trackers": head["trackers"],
        "stages": {"type": "object", "minProperties": 1, "additionalProperties": _node()},
        "schedule": head["schedule"],
    }
    properties: Schema = {
        "version": {"const": 1, "description": "Version of this format."},
        "name": {"type": "string", "pattern": PIPELINE_NAME_PATTERN, "description": "Its runs are kept under it."},
        **{name: head[name] for name in ("extends", "description", "store")},
        "profiles": {"type": "object", "additionalProperties": _closed(profile, [])},
        **dict.fromkeys(whole, True),
    }
    extending: Schema = {**overlay, "schedule": _partial(head["schedule"])}
    del definitions["PipelineSection"], partial["PipelineSection.partial"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Temper pipeline",
        **_closed(properties, ["version", "name"]),
        "if": {"required": ["extends"]},
        "then": {"properties": extending},
        "else": {"properties": whole, "required": ["stages"]},
        "$defs": {**_REFERENCES, **definitions, **partial},
    }


def _definitions() -> dict[str, Schema]:
    nodes = [StageSection, *GATES.values(), *ACTIONS.values()]
    models = [PipelineSection, ParamSection, *nodes, *(stage.config for stage in STAGES.values())]
    _, generated = models_json_schema([(model, "validation") for model in models], by_alias=True)
    found = {name: _with_references(schema) for name, schema in _object(generated, "$defs").items()}
    common: Schema = {**_object(found.pop("StageSection"), "properties")}
    defaults: Schema = {name: common[name] for name in DefaultsSection.model_fields}
    found["DefaultsSection"] = _closed(defaults, [])
    for kind, stage in STAGES.items():
        found[f"stage.{kind}"] = _stage_schema(kind, stage, common)
    return found


def _stage_schema(kind: str, stage: Stage, common: Schema) -> Schema:
    inputs: Schema = {
        name: {"type": "string", "description": f"A {artifact_name(artifact)}."}
        for name, artifact in {**stage.inputs, **stage.optional_inputs}.items()
    }
    needs_settings = any(field.is_required() for field in stage.config.model_fields.values())
    properties: Schema = {
        **common,
        "uses": {"const": kind, "description": f"{(stage.config.__doc__ or '').strip()} The kind of stage."},
        "inputs": _closed(inputs, list(stage.inputs)),
        "with": _ref(stage.config.__name__),
    }
    return _closed(properties, ["uses", *(["inputs"] if stage.inputs else []), *(["with"] if needs_settings else [])])


def _node() -> Schema:
    """One branch for each kind of stage, gate and action, so that an editor explains the settings of that kind."""
    kinds = {
        "uses": {kind: f"stage.{kind}" for kind in STAGES},
        "gate": {kind: section.__name__ for kind, section in GATES.items()},
        "action": {kind: section.__name__ for kind, section in ACTIONS.items()},
    }
    branches: list[JsonValue] = [
        {"if": {"properties": {key: {"const": kind}}, "required": [key]}, "then": _ref(name)}
        for key, names in kinds.items()
        for kind, name in names.items()
    ]
    return {
        "type": "object",
        "properties": {key: {"enum": [*names]} for key, names in kinds.items()},
        "anyOf": [{"required": [key]} for key in kinds],
        "allOf": branches,
    }


def _node_names(suffix: str) -> list[str]:
    sections = (section.__name__ for section in (*GATES.values(), *ACTIONS.values()))
    return [*(f"stage.{kind}{suffix}" for kind in STAGES), *(f"{name}{suffix}" for name in sections)]


def _closed(properties: Schema, required: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": [*required]} if required else schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _any_of(names: list[str]) -> Schema:
    return {"anyOf": [_ref(name) for name in names]}


def _object(parent: Mapping[str, JsonValue], name: str) -> dict[str, Schema]:
    value = parent[name]
    assert isinstance(value, dict), "pydantic writes objects here"
    return {key: part for key, part in value.items() if isinstance(part, dict)}


def _map_schemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """The schema with every schema directly within it changed."""
    changed: Schema = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, dict):
            changed[key] = {name: change(part) if isinstance(part, dict) else part for name, part in value.items()}
        elif key in ("items", "additionalProperties", "if", "then", "else") and isinstance(value, dict):
            changed[key] = change(value)
        elif key in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
            changed[key] = [change(part) if isinstance(part, dict) else part for part in value]
        else:
            changed[key] = value
    return changed


def _with_references(schema: Schema) -> Schema:
    schema = {key: value for key, value in schema.items() if key not in _DROPPED}
    if schema.get("type") not in _LEAF_TYPES and "enum" not in schema and "const" not in schema:
        return _map_schemas(schema, _with_references)
    outside: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    leaf: Schema = {key: value for key, value in schema.items() if key not in outside}
    if leaf == {"type": "string"}:
        return schema
    # Text may hold a reference anywhere; a value of another type is one.
    reference = "textWithReference" if leaf.get("type") == "string" else "reference"
    return {**outside, "anyOf": [leaf, _ref(reference)]}


def _partial(schema: Schema) -> Schema:
    """The schema with nothing required, here and in all that it refers to."""
    changed = _map_schemas({key: value for key, value in schema.items() if key != "required"}, _partial)
    ref = changed.get("$ref")
    refers = isinstance(ref, str) and ref.removeprefix("#/$defs/") not in _REFERENCES
    return {**changed, "$ref": f"{ref}.partial"} if refers else changed


def main() -> None:
    """Write the schema beside the pipelines."""
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(pipeline_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
