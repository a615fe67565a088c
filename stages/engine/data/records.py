"""Rows of a dataset and their file: one JSON object a line, checked when read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from stages.contract import ARTIFACT_FILE, DatasetArtifact, Strict
from stages.errors import UserError


def _refuse_nan(value: dict[str, object]) -> dict[str, object]:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("NaN and infinity are no JSON") from error
    return value


JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_refuse_nan)]


class Tool(Strict):
    """A function that the model may call."""

    name: str = Field(min_length=1)
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments, an object's."""


class ToolCall(Strict):
    """A call of a tool that an assistant's turn makes."""

    name: str = Field(min_length=1)
    arguments: JsonObject
    """In the order in which they are written."""
    id: str | None = None
    """What the tool's result refers to, for models that number their calls."""


class Message(Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    """Of a tool's turn, the result."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's turn, in the order in which they are made."""
    tool_call_id: str | None = None
    """Of a tool's turn, the id of the call."""
    name: str | None = None
    """Of a tool's turn, the tool; of any other, who speaks."""

    @model_validator(mode="after")
    def _fields_belong_to_the_role(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a turn of role {self.role!r} has tool_calls; only an assistant calls tools")
        if self.tool_call_id is not None and self.role != "tool":
            raise ValueError(f"a turn of role {self.role!r} has a tool_call_id; only a tool's result refers to a call")
        return self


class Row(Strict):
    """A problem with its wanted response and its answer."""

    id: str = Field(min_length=1)
    """Unique in its dataset."""
    messages: tuple[Message, ...] = Field(min_length=1)
    """The prompt."""
    response: str
    """The reply to learn from."""
    answer: str
    """What rewards compare a reply with."""
    tools: tuple[Tool, ...] = ()
    """What the prompt offers to be called."""


def read_dataset(folder: Path) -> list[Row]:
    """The rows of an output folder, in the file's order.

    Raises:
        UserError: there is no row, a line is not a row, an id is used twice, or the number of rows is not the
            descriptor's.
    """
    descriptor = _read_descriptor(folder / ARTIFACT_FILE)
    path = folder / descriptor.file
    rows: list[Row] = []
    lines_of: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        row = _parse_row(line, f"{path}:{number}")
        if row.id in lines_of:
            raise UserError(f"{path}:{number}: id {row.id!r} is that of line {lines_of[row.id]}")
        lines_of[row.id] = number
        rows.append(row)
    if len(rows) != descriptor.num_rows:
        raise UserError(f"{path}: {len(rows)} rows, expected {descriptor.num_rows}")
    if not rows:
        raise UserError(f"{path}: the dataset has no rows")
    return rows


def write_dataset(folder: Path, rows: Sequence[Row]) -> DatasetArtifact:
    """Write rows and descriptor; the same rows give the same bytes, and what a row does without is not written."""
    descriptor = DatasetArtifact(num_rows=len(rows))
    with (folder / descriptor.file).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(row.model_dump_json(exclude_defaults=True) + "\n" for row in rows)
    (folder / ARTIFACT_FILE).write_text(descriptor.model_dump_json() + "\n", encoding="utf-8")
    return descriptor


def _read_descriptor(path: Path) -> DatasetArtifact:
    try:
        return DatasetArtifact.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{path}: not a dataset: {error}") from error


def _parse_row(line: bytes, where: str) -> Row:
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{where}: {field + ': ' if field else ''}{first['msg']}") from error
