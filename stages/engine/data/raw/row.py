"""A row as it was read, and the place that messages name it by."""

from collections.abc import Mapping
from typing import NamedTuple


class RawRow(NamedTuple):
    """Fields of a row, or what is wrong with it.

    Attributes:
        place: file and line, as `rows.jsonl:12`, or file and row where there are no lines.
        fields: by column; empty when something is wrong.
        problem: what is wrong: such a row may be left out, and reading goes on after it.
    """

    place: str
    fields: Mapping[str, object]
    problem: str = ""
