"""Checks a part of the tree against a pydantic model and words what it finds for the author of the file."""

import re
from collections.abc import Iterator
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipelines.spec.diagnostics import KeyPath, Place, Problems, did_you_mean, dotted
from pipelines.spec.tree import Scalar, Tree, locate, lookup, to_json

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "dict_type": "expected a mapping of keys to values",
    "model_type": "expected a mapping of keys to values",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "missing": "required, but missing",
}
_NAMES = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": "expected letters, digits, `_`, `.` and `-`, first a letter or digit",
    r"^[A-Za-z][A-Za-z0-9_-]*$": "expected letters, digits, `_` and `-`, first a letter",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "expected letters, digits and `_`, first no digit",
    r"^[a-z0-9][a-z0-9_-]*$": "expected small letters, digits, `_` and `-`, first a letter or digit",
}
"""The patterns of names, in words."""
_LONGEST_SHOWN = 60


def validate(
    model: type[Model], tree: Tree, path: KeyPath, problems: Problems, place: Place | None = None
) -> Model | None:
    """The model's instance, or none when problems were added.

    Args:
        model: what the tree should be.
        tree: a part of the file.
        path: where in the file the tree is.
        problems: gets one report for each fault.
        place: where the key of the tree stands; a fault of the tree as a whole is reported there.
    """
    try:
        return model.model_validate_json(to_json(tree), by_alias=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
        for details in found:
            if details["type"] == "too_short" and any(_within(other["loc"], details["loc"]) for other in found):
                continue  # its items were not counted because they are faulty
            fault, below = locate(tree, details["loc"])
            fault = place if place is not None and fault is tree.place else fault
            problems.add(fault, (*path, *below), _message(model, tree, details))
        return None


def _within(loc: KeyPath, outer: KeyPath) -> bool:
    return len(loc) > len(outer) and loc[: len(outer)] == outer


def _message(model: type[BaseModel], tree: Tree, details: ErrorDetails) -> str:
    kind, loc = details["type"], details["loc"]
    if kind == "extra_forbidden":
        return "unknown key" + _suggestion(model, loc)
    if kind in _EXPECTED:
        return _EXPECTED[kind] + _got(tree, loc)
    if kind == "value_error":
        told = details["msg"].removeprefix("Value error, ")
        # A message that names the faulty part of a text says more than the whole text.
        return told if ", not `" in told else told + _got(tree, loc)
    context = details.get("ctx", {})
    if kind == "string_pattern_mismatch" and context["pattern"] in _NAMES:
        return _NAMES[context["pattern"]] + _got(tree, loc)
    if kind == "too_short":
        return f"expected at least {context['min_length']}, not {context['actual_length']}"
    message = details["msg"].replace("Input should", "should", 1)
    if kind == "literal_error":
        value = lookup(tree, locate(tree, loc)[1])
        if isinstance(value, Scalar) and isinstance(value.value, str):
            return message + _got(tree, loc) + did_you_mean(value.value, re.findall(r"'([^']*)'", message))
    return message + _got(tree, loc)


def _got(tree: Tree, loc: KeyPath) -> str:
    """`, not …`, when the faulty value is a short scalar."""
    value = lookup(tree, locate(tree, loc)[1])
    if not isinstance(value, Scalar):
        return ""
    shown = to_json(value)
    return f", not {shown}" if len(shown) <= _LONGEST_SHOWN else ""


def _suggestion(model: type[BaseModel], loc: KeyPath) -> str:
    key = str(loc[-1])
    siblings = [name for parent in _models_at(model, loc[:-1]) for name in _keys(parent)]
    elsewhere = [dotted(path) for path in _settings(model, ()) if path[-1] == key]
    near = did_you_mean(key, siblings)
    return near or (f" (did you mean `{elsewhere[0]}`?)" if elsewhere else "")


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name


def _settings(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        yield here
        for nested in _models_in(field.annotation):
            yield from _settings(nested, here)


def _models_at(model: type[BaseModel], loc: KeyPath) -> list[type[BaseModel]]:
    """The models that may stand at a place; parts of the path that name a variant change nothing."""
    models = [model]
    for part in loc:
        fields = [field for one in models for name, field in one.model_fields.items() if part in (name, field.alias)]
        if fields:
            models = [nested for field in fields for nested in _models_in(field.annotation)]
    return models


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
