"""Identities compared field by field."""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

_LONGEST_VALUE = 40
_REMEMBERED = 1024
_PAYLOAD = TypeAdapter(dict[str, JsonValue])


class _StoredInput(BaseModel):
    """An input of an identity that another stage made."""

    key: str
    output: str


@dataclass(frozen=True)
class FieldChange:
    """A field of the identity that differs; values as JSON text, none where the field is absent."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.path == "salt":
            return "forced"
        if self.before is None:
            return f"{self.path}: added {_short(self.after)}"
        if self.after is None:
            return f"{self.path}: removed {_short(self.before)}"
        return f"{self.path}: {_short(self.before)} → {_short(self.after)}"

    @property
    def input(self) -> str | None:
        """The name of the input that it is about, if it is about one."""
        return self.path.removeprefix("inputs.") if self.path.startswith("inputs.") else None

    @property
    def moved_keys(self) -> tuple[str, str] | None:
        """The keys before and after, of an input that a stage made both times, and not the same one."""
        if self.input is None or self.before is None or self.after is None:
            return None
        try:
            before, after = (_StoredInput.model_validate_json(side) for side in (self.before, self.after))
        except ValidationError:
            return None
        return (before.key, after.key) if before.key != after.key else None


def num_changes(before: bytes, after: bytes) -> int:
    """How many fields differ between two identity payloads."""
    return len({name for name, _ in fields_of(before).items() ^ fields_of(after).items()})


def changed_fields(before: bytes, after: bytes) -> tuple[FieldChange, ...]:
    """What differs between two identity payloads: their own fields first, then their inputs."""
    old, new = fields_of(before), fields_of(after)
    changes = [
        FieldChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
    return tuple(sorted(changes, key=lambda change: change.input is not None))


@functools.lru_cache(maxsize=_REMEMBERED)
def fields_of(payload: bytes) -> Mapping[str, str]:
    """Leaves by dotted path, as JSON text; lists and inputs are compared whole."""
    return dict(_fields(_PAYLOAD.validate_json(payload), ""))


def _fields(payload: Mapping[str, JsonValue], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in payload.items():
        if isinstance(value, dict) and value and prefix != "inputs.":
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True)


def _short(value: str | None) -> str:
    text = value or ""
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
