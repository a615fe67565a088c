"""The parameters of a pipeline: declared with a type, each with one value."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.spec.diagnostics import KeyPath, Place, Problems
from pipelines.spec.nodes import ParamValue
from pipelines.spec.sections import ParamSection, ParamType
from pipelines.spec.tree import Entry, Scalar, ScalarValue, Table
from pipelines.spec.validation import validate
from stages.errors import UserError
from stages.sources.resolve import check


@dataclass(frozen=True)
class Params:
    """The parameters.

    Attributes:
        values: by name.
        places: where each value is written.
        types: of each of them.
        broken: names that are declared wrongly: nothing is said about those where they are used.
    """

    values: Mapping[str, ParamValue]
    places: Mapping[str, Place]
    types: Mapping[str, ParamType]
    broken: frozenset[str]


def read_params(table: Table, problems: Problems) -> Params:
    """The values of the declared parameters."""
    values: dict[str, ParamValue] = {}
    places: dict[str, Place] = {}
    types: dict[str, ParamType] = {}
    found = table.get("params")
    declared = found.entries if isinstance(found, Table) else {}
    for name, entry in declared.items():
        read = _read_param(name, entry, problems)
        if read is not None:
            values[name], places[name], types[name] = read
    return Params(values, places, types, frozenset(declared) - frozenset(values))


def _read_param(name: str, entry: Entry, problems: Problems) -> tuple[ParamValue, Place, ParamType] | None:
    path = ("params", name)
    section = validate(ParamSection, entry.value, path, problems, entry.key_place)
    if section is None or not isinstance(entry.value, Table):
        return None
    given = entry.value.entries.get("default")
    if given is None:
        problems.add(entry.key_place, path, f"no default: give a value with --set params.{name}=VALUE")
        return None
    value = typed_value(given, section.type, (*path, "default"), problems)
    return None if value is None else (value, given.value.place, section.type)


def typed_value(entry: Entry, wanted: ParamType, path: KeyPath, problems: Problems) -> ParamValue | None:
    """The value of a parameter, or none when a problem was added."""
    value = entry.value.value if isinstance(entry.value, Scalar) else None
    typed = _typed(value, wanted)
    if typed is None:
        shown = json.dumps(value) if isinstance(entry.value, Scalar) else "a list or mapping"
        problems.add(entry.key_place, path, f"expected {_EXPECTED[wanted]}, not {shown}")
    elif isinstance(typed, str) and (wrong := _wrong_text(typed, wanted)):
        problems.add(entry.key_place, path, wrong)
        return None
    return typed


_EXPECTED: Mapping[ParamType, str] = {
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false",
    "str": "text",
    "model_source": "the URI of a model",
}


def _typed(value: ScalarValue, wanted: ParamType) -> ParamValue | None:
    match wanted, value:
        case "bool", bool():
            return value
        case (("int" | "float"), bool()):
            return None
        case "int", int():
            return value
        case "float", int() | float() if math.isfinite(value):
            return float(value)
        case (("str" | "model_source"), str()):
            return value
        case _:
            return None


def _wrong_text(value: str, wanted: ParamType) -> str | None:
    if "${" in value:
        return "a parameter cannot refer to something else"
    if wanted == "model_source":
        try:
            check(value)
        except UserError as error:
            return str(error)
    return None
