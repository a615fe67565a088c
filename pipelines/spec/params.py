"""The parameters of a pipeline: declared with a type, each with one value."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.spec.diagnostics import Problems
from pipelines.spec.nodes import ParamValue
from pipelines.spec.sections import ParamSection, ParamType
from pipelines.spec.tree import Entry, Scalar, ScalarValue, Table
from pipelines.spec.validation import validate
from stages.errors import UserError
from stages.sources.resolve import check


@dataclass(frozen=True)
class Params:
    """Values by name, and the names that are declared wrongly: nothing is said about those where they are used."""

    values: Mapping[str, ParamValue]
    broken: frozenset[str]


def read_params(table: Table, problems: Problems) -> Params:
    """The values of the declared parameters."""
    values: dict[str, ParamValue] = {}
    declared = table.get("params")
    if not isinstance(declared, Table):
        return Params(values, frozenset())
    for name, entry in declared.entries.items():
        value = _read_param(name, entry, problems)
        if value is not None:
            values[name] = value
    return Params(values, frozenset(declared.entries) - frozenset(values))


def _read_param(name: str, entry: Entry, problems: Problems) -> ParamValue | None:
    path = ("params", name)
    section = validate(ParamSection, entry.value, path, problems, entry.key_place)
    if section is None or not isinstance(entry.value, Table):
        return None
    given = entry.value.entries.get("default")
    if given is None:
        problems.add(entry.key_place, path, f"no default: give a value with --set params.{name}=VALUE")
        return None
    value = given.value.value if isinstance(given.value, Scalar) else None
    typed = _typed(value, section.type)
    if typed is None:
        shown = json.dumps(value) if isinstance(given.value, Scalar) else "a list or mapping"
        problems.add(given.key_place, (*path, "default"), f"expected {_EXPECTED[section.type]}, not {shown}")
        return None
    if isinstance(typed, str):
        wrong = _wrong_text(typed, section.type)
        if wrong:
            problems.add(given.key_place, (*path, "default"), wrong)
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
