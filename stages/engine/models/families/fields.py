"""Typed access to what a checkpoint says about itself, with errors that name the entry."""

import math
from collections.abc import Mapping

MAX_SIZE = 2**31 - 1
"""More than any size of a model: a larger number is damage."""


class Fields:
    """Entries of a `config.json`, or of GGUF metadata under a prefix.

    Every method raises ValueError where an entry is missing and has no default, or is of another type.
    """

    def __init__(self, values: Mapping[str, object], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix

    def over(self, defaults: Mapping[str, object]) -> "Fields":
        """The same entries, with these where they are missing."""
        given = {name: value for name, value in self._values.items() if value is not None}
        return Fields({**{self._prefix + name: value for name, value in defaults.items()}, **given}, self._prefix)

    def has(self, name: str) -> bool:
        """Whether there is an entry other than null."""
        return self._values.get(self._prefix + name) is not None

    def size(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SIZE:
            raise ValueError(f"{self._prefix}{name} is {value!r}, expected a whole number from 1 to {MAX_SIZE}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise ValueError(f"{self._prefix}{name} is {value!r}, expected a number above 0")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self._prefix}{name} is {value!r}, expected true or false")
        return value

    def text(self, name: str, default: str) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise ValueError(f"{self._prefix}{name} is {value!r}, expected text")
        return value

    def items(self, name: str) -> list[object]:
        value = self._value(name, None)
        if not isinstance(value, list):
            raise ValueError(f"{self._prefix}{name} is {value!r}, expected a list")
        return list(value)

    def section(self, name: str) -> "Fields":
        """The entries below one, none where it is missing."""
        value = self._values.get(self._prefix + name) or {}
        if not isinstance(value, Mapping):
            raise ValueError(f"{self._prefix}{name} is {value!r}, expected an object")
        return Fields(value)

    def refuse(self, name: str, *, but: object = None) -> None:
        """Raises ValueError where there is an entry with another value than this one."""
        if self.has(name) and self._values[self._prefix + name] != but:
            raise ValueError(f"{self._prefix}{name} {self._values[self._prefix + name]!r} is not supported")

    def _value(self, name: str, default: object) -> object:
        value = self._values.get(self._prefix + name)
        if value is not None:
            return value
        if default is None:
            raise ValueError(f"{self._prefix}{name} is missing")
        return default
