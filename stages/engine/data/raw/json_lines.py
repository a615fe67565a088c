"""Rows of JSON lines."""

from collections.abc import Iterator
from pathlib import Path

import pydantic_core

from stages.engine.data.raw.compressed import open_bytes
from stages.engine.data.raw.row import RawRow


def read_json_lines(path: Path) -> Iterator[RawRow]:
    """One row for each line that is not blank; one that is no object is a row with a problem.

    Raises:
        OSError: the file cannot be read or unpacked.
    """
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.isspace():
                yield _parse(line, f"{path}:{number}")


def _parse(line: bytes, place: str) -> RawRow:
    try:
        value = pydantic_core.from_json(line, allow_inf_nan=False)
    except ValueError as error:
        return RawRow(place, {}, f"Invalid JSON: {error}")
    return object_row(value, place)


def object_row(value: object, place: str) -> RawRow:
    """A row of a JSON value, which has to be an object."""
    if isinstance(value, dict):
        return RawRow(place, value)
    return RawRow(place, {}, f"expected a JSON object, not {_KINDS.get(type(value), type(value).__name__)}")


_KINDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false", type(None): "null"}
