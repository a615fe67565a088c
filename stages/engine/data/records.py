"""Rows of a dataset and their file: one JSON object a line, checked when read."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar, overload

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from stages.contract import ARTIFACT_FILE, DatasetArtifact, RowsKind, Strict
from stages.engine.data.lines import Lines
from stages.errors import UserError

DATA_FILE = "data.jsonl"


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


class Record(Strict):
    """What every line of a dataset has."""

    id: str = Field(min_length=1)
    """Unique in its dataset."""


Messages = Annotated[tuple[Message, ...], Field(min_length=1)]


class Row(Record):
    """A problem with its wanted response and its answer."""

    messages: Messages
    """The prompt."""
    response: str
    """The reply to learn from."""
    answer: str
    """What rewards compare a reply with."""
    tools: tuple[Tool, ...] = ()
    """What the prompt offers to be called."""


class ChatRow(Record):
    """A conversation with the assistant's turns in it."""

    messages: Messages
    num_given: int = Field(default=0, ge=0)
    """So many messages at the beginning are given: nothing of them is learnt, nor of an assistant's turn there."""
    tools: tuple[Tool, ...] = ()

    @model_validator(mode="after")
    def _something_is_learnt(self) -> "ChatRow":
        if not any(message.role == "assistant" for message in self.messages[self.num_given :]):
            raise ValueError("the conversation has no turn of the assistant to learn from")
        return self


class TextRow(Record):
    """Text without a chat template."""

    text: str = Field(min_length=1)
    """What is learnt."""
    prompt: str = ""
    """What stands before it and is given: nothing of it is learnt."""


def _ends_with_assistant(reply: tuple[Message, ...]) -> tuple[Message, ...]:
    if reply[-1].role != "assistant":
        raise ValueError(f"a reply ends with a turn of the assistant, not of role {reply[-1].role!r}")
    return reply


Reply = Annotated[Messages, AfterValidator(_ends_with_assistant)]
"""Turns that follow a prompt, from the assistant's first to its last; mostly just one."""


class PreferenceRow(Record):
    """Two replies to one prompt, of which one is better."""

    messages: Messages
    """The prompt."""
    chosen: Reply
    rejected: Reply
    margin: float | None = None
    """By how much the chosen one is better, in the units of the data."""
    tools: tuple[Tool, ...] = ()


class LabelledRow(Record):
    """A reply to a prompt, and whether it is a good one."""

    messages: Messages
    """The prompt."""
    response: Reply
    label: bool
    """Whether such replies are wanted."""
    tools: tuple[Tool, ...] = ()


RECORDS: Mapping[RowsKind, type[Record]] = {
    "problem": Row,
    "conversation": ChatRow,
    "text": TextRow,
    "preference": PreferenceRow,
    "labelled": LabelledRow,
}

RecordT = TypeVar("RecordT", bound=Record)


class Rows(Generic[RecordT]):
    """Rows of a dataset's file, each parsed when it is asked for: the file may be larger than memory."""

    def __init__(self, path: Path, record: type[RecordT]) -> None:
        self.path = path
        self.record = record
        """What each row is."""
        self._lines = Lines(path)

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> RecordT: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordT]: ...
    def __getitem__(self, index: int | slice) -> RecordT | list[RecordT]:
        """A row, or a list of some.

        Raises:
            UserError: a line is no such row; the message has file, line and field.
        """
        if isinstance(index, slice):
            return [self._parse(one) for one in range(*index.indices(len(self)))]
        return self._parse(range(len(self))[index])

    def __iter__(self) -> Iterator[RecordT]:
        return map(self._parse, range(len(self)))

    def _parse(self, index: int) -> RecordT:
        try:
            return self.record.model_validate_json(self._lines[index])
        except ValidationError as error:
            raise UserError(f"{self.path}:{index + 1}: {first_problem(error)}") from error


def first_problem(error: ValidationError) -> str:
    """The first of the problems that were found, with its field."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field + ': ' if field else ''}{first['msg']}"


def open_dataset(folder: Path, *takes: type[RecordT]) -> Rows[RecordT]:
    """The rows of an output folder, in the file's order.

    Args:
        folder: of a dataset.
        takes: the records that the caller knows what to do with; `Rows.record` says which of them it is.

    Raises:
        UserError: the rows are of another kind, there is none, or not as many as the descriptor says.
    """
    descriptor = read_descriptor(folder)
    rows = _open_rows(folder / descriptor.file, descriptor, takes)
    _check_number(rows, descriptor)
    return rows


def read_dataset(folder: Path) -> list[Row]:
    """All problems of an output folder, in the file's order.

    Raises:
        UserError: as `open_dataset`, or a line is not a row, or an id is used twice.
    """
    descriptor = read_descriptor(folder)
    rows = _open_rows(folder / descriptor.file, descriptor, (Row,))
    lines_of: dict[str, int] = {}
    read: list[Row] = []
    for number, row in enumerate(rows, start=1):
        if row.id in lines_of:
            raise UserError(f"{rows.path}:{number}: id {row.id!r} is that of line {lines_of[row.id]}")
        lines_of[row.id] = number
        read.append(row)
    _check_number(rows, descriptor)
    return read


def write_dataset(folder: Path, rows: Iterable[Record], record: type[Record] = Row) -> DatasetArtifact:
    """Write rows and descriptor; the same rows give the same bytes, and what a row does without is not written."""
    return write_lines(folder, (row.model_dump_json(exclude_defaults=True).encode() for row in rows), record)


def write_lines(folder: Path, lines: Iterable[bytes], record: type[Record]) -> DatasetArtifact:
    """Write rows that are JSON already, each in one line without its end, and their descriptor."""
    kind: RowsKind = next(kind for kind, known in RECORDS.items() if known is record)
    num_rows = 0
    with (folder / DATA_FILE).open("wb") as file:
        for line in lines:
            file.write(line + b"\n")
            num_rows += 1
    descriptor = DatasetArtifact(file=DATA_FILE, num_rows=num_rows, rows=kind)
    (folder / ARTIFACT_FILE).write_text(descriptor.model_dump_json() + "\n", encoding="utf-8")
    return descriptor


def _open_rows(path: Path, descriptor: DatasetArtifact, takes: tuple[type[RecordT], ...]) -> Rows[RecordT]:
    for record in takes:
        if RECORDS[descriptor.rows] is record:
            return Rows(path, record)
    kinds = " or ".join(f"'{kind}'" for kind, record in RECORDS.items() if record in takes)
    raise UserError(
        f"{path}: the dataset has rows of kind '{descriptor.rows}', but this stage takes {kinds}; the setting `format` "
        "of the stage that prepared it says what rows become"
    )


def _check_number(rows: Rows[RecordT], descriptor: DatasetArtifact) -> None:
    if len(rows) != descriptor.num_rows:
        raise UserError(f"{rows.path}: {len(rows)} rows, expected {descriptor.num_rows}")
    if not rows:
        raise UserError(f"{rows.path}: the dataset has no rows")


def read_descriptor(folder: Path) -> DatasetArtifact:
    """What a folder of a dataset holds.

    Raises:
        UserError: it is none.
    """
    path = folder / ARTIFACT_FILE
    try:
        return DatasetArtifact.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{path}: not a dataset: {error}") from error
