"""Records made into records of another kind."""

from stages.contract import RowsKind
from stages.engine.data.records import (
    RECORDS,
    ChatRow,
    LabelledRow,
    Message,
    PreferenceRow,
    Record,
    Row,
    TextRow,
)
from stages.errors import UserError


def as_record(record: Record, kind: RowsKind | None) -> Record:
    """The record as one of the wanted kind; itself where none is wanted.

    Raises:
        UserError: such a record cannot become one of this kind.
    """
    if kind is None or isinstance(record, RECORDS[kind]):
        return record
    match kind, record:
        case "conversation", Row(messages=prompt, response=response):
            reply = (Message(role="assistant", content=response),)
        case "conversation", PreferenceRow(messages=prompt, chosen=reply):
            pass
        case _:
            found = next(name for name, known in RECORDS.items() if isinstance(record, known))
            raise UserError(f"rows: a row of kind '{found}' cannot become one of kind '{kind}'")
    return ChatRow(id=record.id, messages=(*prompt, *reply), num_given=len(prompt), tools=record.tools)


def with_system(record: Record, content: str) -> Record:
    """The record with a system message before its prompt, where it has none.

    Raises:
        UserError: it has no messages.
    """
    match record:
        case ChatRow(messages=messages) | Row(messages=messages) | PreferenceRow(messages=messages):
            pass
        case LabelledRow(messages=messages):
            pass
        case TextRow():
            raise UserError("system_prompt: rows of text have no system message; leave the setting out")
        case _:
            raise TypeError(f"{type(record).__name__} is no known record")
    if messages[0].role == "system":
        return record
    more: dict[str, object] = {"messages": (Message(role="system", content=content), *messages)}
    if isinstance(record, ChatRow) and record.num_given:
        more["num_given"] = record.num_given + 1
    return record.model_copy(update=more)
