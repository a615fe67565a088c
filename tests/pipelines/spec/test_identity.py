"""Keys: fixed for fixed payloads, the same in every process, and moved by exactly the settings that matter."""

import json
import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Annotated, Literal, cast, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue, ValidationError, create_model

from pipelines.spec.identity import ExternalIdentity, Identity, StoredIdentity, identity_payload, key_of
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import StageNode
from pipelines.spec.roles import role_of, source_values
from stages.catalog import STAGES
from stages.contract import Added, Execution, Role, SourceUri, StageConfigBase, Strict

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).with_name("golden_keys.json")


def digest_of(uri: str) -> str:
    return f"digest-of:{uri}"


class Order(StrEnum):
    FORWARD = "forward"


class Section(Strict):
    rate: float
    """A number."""
    names: tuple[str, ...] = ("a", "b")
    """A list."""
    threads: int = Execution(4)
    """Not in the key."""
    extra: float = Added(0.0)
    """In the key once it is not 0."""


class Config(StageConfigBase):
    section: Section
    """A section."""
    source: SourceUri
    """An external input."""
    more: tuple[SourceUri, ...] | None = None
    """More of them."""
    note: str | None = None
    """Text."""
    order: Order = Order.FORWARD
    """A choice."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Numbers by name."""
    fast: bool = False
    """A switch."""
    machine: Section = Execution(Section(rate=1.0))
    """Not in the key, nor anything in it."""


def payload(config: StageConfigBase, salt: str | None = None) -> dict[str, JsonValue]:
    inputs = {"model": ExternalIdentity("sha256:00"), "dataset": StoredIdentity("k" * 64, "train")}
    return json.loads(identity_payload(Identity("kind", 3, 1, config, inputs), digest_of, salt))


def key(config: StageConfigBase) -> str:
    return key_of(identity_payload(Identity("kind", 3, 1, config, {}), digest_of))


def test_the_payload_holds_what_the_result_depends_on_and_nothing_else() -> None:
    config = Config(section=Section(rate=1, threads=9), source="here.txt", more=("a", "b"), weights={"z": 1, "a": 2})
    assert payload(config, salt="s") == {
        "scheme": 1,
        "stage": "kind",
        "version": 3,
        "rev": 1,
        "salt": "s",
        "with": {
            "section": {"rate": 1.0, "names": ["a", "b"]},
            "source": "digest-of:here.txt",
            "more": ["digest-of:a", "digest-of:b"],
            "note": None,
            "order": "forward",
            "weights": {"a": 2.0, "z": 1.0},
            "fast": False,
        },
        "inputs": {"model": {"digest": "sha256:00"}, "dataset": {"key": "k" * 64, "output": "train"}},
    }


def test_an_added_setting_enters_the_key_only_when_it_is_not_at_its_default() -> None:
    plain = Config(section=Section(rate=1), source="x")
    assert key(Config(section=Section(rate=1, extra=0.0), source="x")) == key(plain)
    assert key(Config(section=Section(rate=1, extra=0.1), source="x")) != key(plain)


def test_equal_numbers_are_one_identity() -> None:
    one, minus_zero, zero = (Config(section=Section(rate=rate), source="x") for rate in (1, -0.0, 0.0))
    assert key(one) == key(Config(section=Section(rate=1.0), source="x"))
    assert key(minus_zero) == key(zero)


def test_what_has_no_canonical_form_is_refused() -> None:
    class Odd(StageConfigBase):
        where: Path
        """A path."""

    with pytest.raises(TypeError, match="PosixPath has no canonical form"):
        key(Odd(where=Path("x")))


def test_sources_are_found_in_lists_and_optional_values() -> None:
    config = Config(section=Section(rate=1), source="x", more=("y",))
    assert list(source_values(config)) == [(("source",), "x"), (("more", 0), "y")]


class Part(Strict):
    """One of several sources."""

    source: SourceUri
    weight: float = 1.0


class Mixture(StageConfigBase):
    """Settings that name one source, or several with more about each."""

    source: SourceUri | tuple[Part, ...]


def test_sources_within_sections_of_a_list_are_found_and_enter_the_key_by_their_content() -> None:
    one, two = Mixture(source="x"), Mixture(source=(Part(source="x"), Part(source="y", weight=2)))
    assert list(source_values(one)) == [(("source",), "x")]
    assert list(source_values(two)) == [(("source", 0, "source"), "x"), (("source", 1, "source"), "y")]
    assert payload(one)["with"] == {"source": "digest-of:x"}
    assert payload(two)["with"] == {
        "source": [{"source": "digest-of:x", "weight": 1.0}, {"source": "digest-of:y", "weight": 2.0}]
    }


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.integers(min_value=0, max_value=2**70))
def test_different_values_have_different_keys(rate: float, note: str, threads: int) -> None:
    base = Config(section=Section(rate=0.5), source="x", note="base")
    other = Config(section=Section(rate=rate, threads=threads), source="x", note=note)
    assert (key(base) == key(other)) == (rate == 0.5 and note == "base")


# --- every kind of stage -------------------------------------------------------------------------


def golden_config(golden: dict[str, JsonValue]) -> StageConfigBase:
    return STAGES[str(golden["kind"])].config.model_validate_json(json.dumps(golden["settings"]))


def stage_configs() -> dict[str, StageConfigBase]:
    """Settings of every kind: those of the smoke pipeline, and what has a golden key."""
    golden = {stage["kind"]: golden_config(stage) for stage in json.loads(GOLDEN.read_text())["stages"]}
    nodes = load_pipeline(ROOT / "pipelines" / "smoke.yaml").nodes.values()
    return golden | {node.kind: node.config for node in nodes if isinstance(node, StageNode)}


CONFIGS = stage_configs()


def leaves(model: BaseModel, path: tuple[str, ...] = (), execution: bool = False) -> Iterator[tuple[str, bool]]:
    """Every leaf of the settings with whether it, or a section that it stands in, is `Execution`."""
    for name, field in type(model).model_fields.items():
        marked = execution or role_of(field) is Role.EXECUTION
        value = model.__dict__[name]
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, name), marked)
        elif len(get_args(field.annotation)) != 1:  # the name of a variant has no other value
            yield ".".join((*path, name)), marked


def choices(annotation: object) -> list[JsonValue]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        required = {name: field for name, field in annotation.model_fields.items() if field.is_required()}
        found = {name: choices(field.annotation) for name, field in required.items()}
        return [{name: values[0] for name, values in found.items()}] if all(found.values()) else []
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if annotation in (int, float):
        return [1, 0.5]
    return [choice for argument in get_args(annotation) for choice in choices(argument)]


def other_values(config: StageConfigBase, leaf: str) -> Iterator[StageConfigBase]:
    """The settings with another valid value in one leaf."""
    *parents, last = leaf.split(".")
    owner: BaseModel = config
    for part in parents:
        owner = owner.__dict__[part]
    value = owner.__dict__[last]
    candidates: list[JsonValue] = [*choices(type(owner).model_fields[last].annotation), "other", None]
    if isinstance(value, int | float) and not isinstance(value, bool):
        candidates = [value * 2, value + 1, value + 2, value / 2, value / 2 + 0.25, value // 2, *candidates]
    if isinstance(value, bool):
        candidates = [not value]
    plain = json.loads(config.model_dump_json())
    if isinstance(value, tuple):
        items = reduce(operator.getitem, [*parents, last], plain)
        candidates = [items[:-1], [*items, "other"], [*items, 1], items[::-1]]
    for candidate in candidates:
        inner = plain
        for part in parents:
            inner = inner[part]
        inner[last] = candidate
        try:
            changed = type(config).model_validate_json(json.dumps(plain))
        except ValidationError:
            continue
        if changed != config:
            yield changed


ALL_LEAVES = [(kind, leaf, marked) for kind, config in CONFIGS.items() for leaf, marked in leaves(config)]


@pytest.mark.parametrize(("kind", "leaf", "execution"), ALL_LEAVES)
def test_a_setting_changes_the_key_unless_it_is_marked_as_execution(kind: str, leaf: str, execution: bool) -> None:
    config = CONFIGS[kind]
    others = list(other_values(config, leaf))
    assert others, f"no other valid value of {kind}.{leaf} was found"
    for other in others:
        assert (key(other) == key(config)) == execution


Schema = dict[str, JsonValue]


def identity_parts(value: JsonValue, schema: Schema, definitions: Schema) -> JsonValue:
    """Settings as JSON without what their JSON schema marks: an account of identity apart from that of the key."""
    if not isinstance(value, dict):
        return value
    fields = fields_of(schema, value, definitions)
    return {
        name: identity_parts(item, cast("Schema", fields[name]), definitions) if name in fields else item
        for name, item in value.items()
        if name not in fields or is_kept(item, cast("Schema", fields[name]))
    }


def is_kept(value: JsonValue, field: Schema) -> bool:
    role = field.get("x-role")
    return role != "execution" and not (role == "added" and value == field.get("default"))


def fields_of(schema: Schema, value: Schema, definitions: Schema) -> Schema:
    """The fields that a section with these keys has; of several variants the first that has them all."""
    if isinstance(reference := schema.get("$ref"), str):
        return fields_of(cast("Schema", definitions[reference.rpartition("/")[2]]), value, definitions)
    variants = cast("list[Schema]", schema.get("anyOf", schema.get("oneOf", [])))
    found = [fields_of(variant, value, definitions) for variant in variants]
    found.append(cast("Schema", schema.get("properties", {})))
    return next((fields for fields in found if value.keys() <= fields.keys()), {})


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_two_settings_of_a_kind_have_one_key_exactly_when_they_differ_in_execution_only(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(CONFIGS)))
    changed = base = CONFIGS[kind]
    for _ in range(data.draw(st.integers(1, 4))):
        leaf = data.draw(st.sampled_from([leaf for leaf, _ in leaves(changed)]))
        changed = data.draw(st.sampled_from([changed, *other_values(changed, leaf)]))
    schema = type(base).model_json_schema()
    parts = [
        identity_parts(json.loads(config.model_dump_json()), schema, schema.get("$defs", {}))
        for config in (base, changed)
    ]
    assert (key(base) == key(changed)) == (parts[0] == parts[1])


@pytest.mark.parametrize("kind", STAGES)
def test_a_setting_that_a_later_release_adds_leaves_every_key_as_it_is(kind: str) -> None:
    config = CONFIGS[kind]
    later = create_model("Later", __base__=type(config), extra=(float, Added(0.25)), threads=(int, Execution(1)))
    plain = json.loads(config.model_dump_json())
    assert key(later.model_validate_json(json.dumps(plain))) == key(config)
    assert key(later.model_validate_json(json.dumps({**plain, "extra": 0.25, "threads": 9}))) == key(config)
    assert key(later.model_validate_json(json.dumps({**plain, "extra": 0.5}))) != key(config)


@pytest.mark.parametrize("kind", STAGES)
def test_kind_version_rev_inputs_and_salt_change_the_key(kind: str) -> None:
    config = CONFIGS[kind]
    inputs = {"model": StoredIdentity("a" * 64, "checkpoint")}
    variants = [
        (Identity(kind, 1, 0, config, inputs), None),
        (Identity("other", 1, 0, config, inputs), None),
        (Identity(kind, 2, 0, config, inputs), None),
        (Identity(kind, 1, 1, config, inputs), None),
        (Identity(kind, 1, 0, config, {}), None),
        (Identity(kind, 1, 0, config, {"reference": inputs["model"]}), None),
        (Identity(kind, 1, 0, config, {"model": StoredIdentity("b" * 64, "checkpoint")}), None),
        (Identity(kind, 1, 0, config, {"model": StoredIdentity("a" * 64, "other")}), None),
        (Identity(kind, 1, 0, config, {"model": ExternalIdentity("a" * 64)}), None),
        (Identity(kind, 1, 0, config, inputs), "salt"),
    ]
    keys = {key_of(identity_payload(identity, digest_of, salt)) for identity, salt in variants}
    assert len(keys) == len(variants)


# --- golden keys ---------------------------------------------------------------------------------


class GoldenConfig(StageConfigBase):
    """Frozen: its golden keys say that the key scheme itself did not change."""

    section: Annotated[Section, Field()]
    """A section."""
    source: SourceUri
    """An external input."""
    text: str
    """Text beyond ASCII."""


def golden_keys() -> list[str]:
    scheme = GoldenConfig(section=Section(rate=1e-5, extra=2.5), source="package://x", text="Grüße ∆")
    identities = [
        Identity("golden", 1, 0, scheme, {"model": ExternalIdentity("sha256:ab")}),
        Identity("golden", 2, 3, scheme, {"model": StoredIdentity("c" * 64, "checkpoint")}),
    ]
    for golden in json.loads(GOLDEN.read_text())["stages"]:
        identities.append(Identity(golden["kind"], golden["version"], 0, golden_config(golden), {}))
    return [key_of(identity_payload(identity, digest_of)) for identity in identities]


def expected_keys() -> list[str]:
    golden = json.loads(GOLDEN.read_text())
    return [*golden["scheme"], *(stage["key"] for stage in golden["stages"])]


def test_golden_keys_are_as_they_were() -> None:
    """A release's keys stay: settings come in as `Added`, and another default needs a line in CHANGELOG.md.

    To the file, stages and settings are added; what stands there is not made anew.
    """
    assert golden_keys() == expected_keys()


def test_every_kind_of_stage_has_a_golden_key() -> None:
    assert {golden["kind"] for golden in json.loads(GOLDEN.read_text())["stages"]} == set(STAGES)


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_golden_keys_are_the_same_in_every_process(seed: str) -> None:
    program = (
        "import importlib.util, json, sys; "
        f"spec = importlib.util.spec_from_file_location('golden', {__file__!r}); "
        "module = importlib.util.module_from_spec(spec); sys.modules['golden'] = module; "
        "spec.loader.exec_module(module); print(json.dumps(module.golden_keys()))"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == expected_keys()
