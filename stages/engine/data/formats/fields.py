"""Fields of a row by what they mean, whatever their columns are called."""

from collections.abc import Collection, Mapping
from typing import NoReturn

import pydantic_core

from stages.engine.data.formats.names import Column

KNOWN_AS: Mapping[Column, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation"),
    "tools": ("tools", "functions"),
    "system": ("system", "system_prompt"),
    "history": ("history",),
    "prompt": ("prompt", "instruction", "question"),
    "input": ("input",),
    "completion": ("completion", "response", "output"),
    "chosen": ("chosen", "chosen_messages"),
    "rejected": ("rejected", "rejected_messages"),
    "margin": ("margin",),
    "score_chosen": ("score_chosen", "chosen_score"),
    "score_rejected": ("score_rejected", "rejected_score"),
    "label": ("label", "kto_tag"),
    "question": ("question", "problem"),
    "answer": ("answer",),
    "text": ("text", "content"),
}
"""Names that columns have without anybody saying so, the first that is there is taken."""


class BadRowError(ValueError):
    """What is wrong with a row; its place is known to whoever reads it."""


class Columns:
    """Which columns of a source have which meaning."""

    def __init__(self, named: Mapping[Column, str]) -> None:
        """`named` says by what each column is called; the others are found by names that they usually have."""
        taken = set(named.values())
        self._names: dict[Column, tuple[str, ...]] = {}
        for column, names in KNOWN_AS.items():
            own = named.get(column)
            self._names[column] = tuple(name for name in names if name not in taken) if own is None else (own,)

    @property
    def all(self) -> frozenset[str]:
        """Every name that is looked for."""
        return frozenset(name for names in self._names.values() for name in names)

    def present(self, names: Collection[str]) -> frozenset[Column]:
        """What a row with columns of these names has."""
        return frozenset(column for column, known in self._names.items() if any(name in names for name in known))

    def shown(self, column: Column) -> str:
        """Its names, for messages."""
        return " or ".join(f"`{name}`" for name in self._names[column])

    def find(self, fields: Mapping[str, object], column: Column) -> object:
        """The field; None where it is null or not there."""
        for name in self._names[column]:
            value = fields.get(name)
            if value is not None:
                return value
        return None


class Fields:
    """One row."""

    def __init__(self, fields: Mapping[str, object], columns: Columns) -> None:
        self._fields = fields
        self._columns = columns

    def find(self, column: Column) -> object:
        """The field; None where it is null or not there."""
        return self._columns.find(self._fields, column)

    def need(self, column: Column) -> object:
        """The field.

        Raises:
            BadRowError: it is null or not there.
        """
        value = self.find(column)
        if value is None:
            raise BadRowError(f"{self._columns.shown(column)} is missing")
        return value

    def text(self, column: Column) -> str:
        """The field, which has to be text."""
        return self.as_text(column, self.need(column))

    def optional_text(self, column: Column) -> str:
        """The field, empty where it is null or not there."""
        value = self.find(column)
        return "" if value is None else self.as_text(column, value)

    def number(self, column: Column) -> float | None:
        """The field, which has to be a number where there is one; in tables of text it is written out."""
        value = self.find(column)
        if value is None:
            return None
        try:
            return float(value) if isinstance(value, str | int | float) else self._refuse(column, "a number", value)
        except ValueError:
            return self._refuse(column, "a number", value)

    def as_text(self, column: Column, value: object) -> str:
        """A value of the field, which has to be text."""
        return value if isinstance(value, str) else self._refuse(column, "text", value)

    def _refuse(self, column: Column, wanted: str, value: object) -> NoReturn:
        raise BadRowError(f"{self._columns.shown(column)}: expected {wanted}, not {shown(value)}")


_LONGEST = 60


def shown(value: object) -> str:
    """A value in a message, cut short."""
    text = pydantic_core.to_json(value, inf_nan_mode="constants", fallback=str).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def parsed(value: object) -> object:
    """A value that may be written out as JSON text within a field.

    Raises:
        BadRowError: it is text, and no JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return pydantic_core.from_json(value, allow_inf_nan=False)
    except ValueError as error:
        raise BadRowError(f"no JSON ({error}): {shown(value)}") from error
