"""How the settings of a stage enter its identity, and which of them name external inputs."""

from collections.abc import Iterator
from functools import cache
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.spec.diagnostics import KeyPath
from stages.contract import Role


def role_of(field: FieldInfo) -> Role | None:
    """The role that `Execution`, `Added` or `SourceUri` gave the field, also within `… | None` or a tuple."""
    own = _marked(field)
    return own or (Role.SOURCE if _names_source(field.annotation) else None)


def source_values(settings: BaseModel) -> Iterator[tuple[KeyPath, str]]:
    """Every URI of an external input in the settings, with its path."""
    for name, field in type(settings).model_fields.items():
        is_source = role_of(field) is Role.SOURCE
        for path, value in _leaves(settings.__dict__[name], (name,)):
            if isinstance(value, BaseModel):
                for below, uri in source_values(value):
                    yield (*path, *below), uri
            elif is_source and isinstance(value, str):
                yield path, value


@cache
def execution_integers(settings: type[BaseModel]) -> frozenset[str]:
    """Dotted names of the counts, which are never negative, among the settings that are no part of the identity."""
    return frozenset(_integers(settings, "", inherited=False))


def _integers(settings: type[BaseModel], prefix: str, inherited: bool) -> Iterator[str]:
    """A section that is no part of the identity as a whole hands that down to what stands in it."""
    for name, field in settings.model_fields.items():
        execution = inherited or role_of(field) is Role.EXECUTION
        parts = {field.annotation, *get_args(field.annotation)}
        if execution and int in parts and not any(map(_allows_less_than_nothing, field.metadata)):
            yield f"{prefix}{name}"
        for part in parts:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _integers(part, f"{prefix}{name}.", execution)


def _allows_less_than_nothing(bound: object) -> bool:
    match bound:
        case object(ge=int(least)):
            return least < 0
    return False


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield path, value


def _marked(field: FieldInfo) -> Role | None:
    extra = field.json_schema_extra
    return Role(str(extra["x-role"])) if isinstance(extra, dict) and "x-role" in extra else None


def _names_source(annotation: object) -> bool:
    return any(
        (isinstance(part, FieldInfo) and _marked(part) is Role.SOURCE) or _names_source(part)
        for part in get_args(annotation)
    )
