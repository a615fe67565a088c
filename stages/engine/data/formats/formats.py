"""The formats of rows: what columns each has, and what record becomes of a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from stages.engine.data.formats.fields import BadRowError, Columns, Fields, shown
from stages.engine.data.formats.names import Column, FormatName
from stages.engine.data.formats.prompts import holds_prompt, read_prompt, read_reply, split_pair
from stages.engine.data.formats.turns import Turn, read_tools, read_turns
from stages.engine.data.records import (
    ChatRow,
    LabelledRow,
    Message,
    PreferenceRow,
    Record,
    Row,
    TextRow,
    first_problem,
)

NO_ID = "?"
"""Id of a record that has none yet."""


@dataclass(frozen=True)
class Format:
    """A form of rows.

    Attributes:
        record: what becomes of a row.
        needs: sets of columns; a row of this format has all columns of one of them.
        convert: from a row to its record, without an id.
        example: a row, as JSON.
    """

    record: type[Record]
    needs: tuple[frozenset[Column], ...]
    convert: Callable[[Fields], Record]
    example: str


def _problem(fields: Fields) -> Row:
    answer = fields.text("answer")
    response = fields.optional_text("completion") or answer
    return Row(id=NO_ID, messages=_asked(fields, fields.text("question")), response=response, answer=answer)


def _chat(fields: Fields) -> ChatRow:
    turns = read_turns(fields.need("messages"))
    messages = (*_system(fields), *(turn.message for turn in turns))
    num_before = len(messages) - len(turns)
    return ChatRow(
        id=NO_ID,
        messages=messages,
        num_given=_num_given(turns, num_before),
        tools=read_tools(fields.find("tools")),
    )


def _prompt_completion(fields: Fields) -> ChatRow:
    prompt = (*_system(fields), *read_prompt(fields))
    messages = (*prompt, *read_reply(fields.need("completion")))
    return ChatRow(id=NO_ID, messages=messages, num_given=len(prompt), tools=read_tools(fields.find("tools")))


def _text(fields: Fields) -> TextRow:
    return TextRow(id=NO_ID, text=fields.text("text"), prompt=fields.optional_text("prompt"))


def _preference(fields: Fields) -> PreferenceRow:
    chosen, rejected = fields.need("chosen"), fields.need("rejected")
    if holds_prompt(chosen):
        prompt, better, worse = split_pair(chosen, rejected)
    else:
        prompt, better, worse = _prompt_of(fields), read_reply(chosen), read_reply(rejected)
    return PreferenceRow(
        id=NO_ID,
        messages=(*_system(fields), *prompt),
        chosen=better,
        rejected=worse,
        margin=_margin(fields),
        tools=read_tools(fields.find("tools")),
    )


def _labelled(fields: Fields) -> LabelledRow:
    label = _LABELS.get(str(fields.need("label")).lower())
    if label is None:
        raise BadRowError(f"the label is {shown(fields.find('label'))}; expected true or false, or 1 or 0")
    if fields.find("completion") is None:
        messages = [turn.message for turn in read_turns(fields.need("messages"))]
        start = len(messages) - 1
        while start > 0 and messages[start - 1].role in ("assistant", "tool"):
            start -= 1
        prompt, response = tuple(messages[:start]), tuple(messages[start:])
    else:
        prompt, response = _prompt_of(fields), read_reply(fields.need("completion"))
    return LabelledRow(
        id=NO_ID,
        messages=(*_system(fields), *prompt),
        response=response,
        label=label,
        tools=read_tools(fields.find("tools")),
    )


_LABELS: Mapping[str, bool] = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def _prompt_of(fields: Fields) -> tuple[Message, ...]:
    if fields.find("prompt") is None:
        return tuple(turn.message for turn in read_turns(fields.need("messages")))
    return read_prompt(fields)


def _system(fields: Fields) -> tuple[Message, ...]:
    content = fields.optional_text("system")
    return (Message(role="system", content=content),) if content else ()


def _asked(fields: Fields, question: str) -> tuple[Message, ...]:
    return (*_system(fields), Message(role="user", content=question))


def _margin(fields: Fields) -> float | None:
    margin, better, worse = (fields.number(name) for name in ("margin", "score_chosen", "score_rejected"))
    return better - worse if margin is None and better is not None and worse is not None else margin


def _num_given(turns: list[Turn], num_before: int) -> int:
    """How many messages there are up to the last of the assistant's turns that is not to be learnt."""
    replies = [(number, turn.learnt) for number, turn in enumerate(turns) if turn.message.role == "assistant"]
    left_out = [number for number, learnt in replies if not learnt]
    if not left_out:
        return 0
    if any(learnt and number < left_out[-1] for number, learnt in replies):
        raise BadRowError("turns of weight 0 come after turns of weight 1: only the first turns can be left out")
    return num_before + left_out[-1] + 1


FORMATS: Mapping[FormatName, Format] = {
    "preference": Format(
        PreferenceRow,
        (frozenset({"chosen", "rejected"}),),
        _preference,
        '{"prompt": "…", "chosen": "…", "rejected": "…"}',
    ),
    "labelled": Format(
        LabelledRow,
        (frozenset({"label", "prompt", "completion"}), frozenset({"label", "messages"})),
        _labelled,
        '{"prompt": "…", "completion": "…", "label": true}',
    ),
    "chat": Format(
        ChatRow,
        (frozenset({"messages"}),),
        _chat,
        '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}',
    ),
    "problem": Format(Row, (frozenset({"question", "answer"}),), _problem, '{"question": "…", "answer": "…"}'),
    "prompt_completion": Format(
        ChatRow,
        (frozenset({"prompt", "completion"}),),
        _prompt_completion,
        '{"prompt": "…", "completion": "…"}',
    ),
    "text": Format(TextRow, (frozenset({"text"}),), _text, '{"text": "…"}'),
}
"""In the order in which a row's columns are compared with them."""


def find_format(names: frozenset[str], columns: Columns) -> FormatName | None:
    """The first format that rows with columns of these names have everything for."""
    present = columns.present(names)
    return next((name for name, form in FORMATS.items() if any(need <= present for need in form.needs)), None)


def convert(form: Format, fields: Mapping[str, object], columns: Columns) -> Record:
    """The record of a row, without an id.

    Raises:
        BadRowError: the row is not of this format.
    """
    try:
        return form.convert(Fields(fields, columns))
    except ValidationError as error:
        raise BadRowError(first_problem(error)) from error
