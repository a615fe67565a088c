"""Calls as FunctionGemma writes them: `call:name{argument:value}` in tags, texts between `<escape>` tokens.

Source: FunctionGemma formatting and best practices, Google; its chat template.
"""

import re
from collections.abc import Sequence

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.json_value import read_json, skip_space, write_json
from stages.engine.data.tool_calls.turn import Json, MalformedCallError, ToolTurn, make_call, outside
from stages.errors import UserError

OPEN, CLOSE = "<start_function_call>", "<end_function_call>"
_QUOTE = "<escape>"
_NAME = re.compile(r"[^\s{}<>]+")
_CALL = re.compile(rf"\s*call:({_NAME.pattern})\s*(?=\{{)")
_KEY = re.compile(r"[^\s:{}\[\],<>]+")
_WORDS: dict[str, Json] = {"true": True, "false": False, "None": None, "null": None}
_WORD = re.compile("|".join(_WORDS))
_MAX_DEPTH = 64


def read_turn(reply: str) -> ToolTurn:
    """See `ToolCallFormat.read`."""
    said: list[str] = []
    calls: list[ToolCall] = []
    done = 0
    while (start := reply.find(OPEN, done)) >= 0:
        said.append(reply[done:start])
        call, done = _read_call(reply, start)
        calls.append(call)
    return ToolTurn(outside([*said, reply[done:]]), tuple(calls)) if calls else ToolTurn(reply, ())


def render_calls(calls: Sequence[ToolCall]) -> str:
    """See `ToolCallFormat.render`; a text that holds `<escape>` cannot be written."""
    for call in calls:
        if not _NAME.fullmatch(call.name):
            raise UserError(f"a tool named {call.name!r} cannot be called in this format; choose another name")
    return "".join(f"{OPEN}call:{call.name}{_write(call.arguments)}{CLOSE}" for call in calls)


def _write(value: object) -> str:
    match value:
        case str():
            if _QUOTE in value:
                raise UserError(f"the text {value!r} holds {_QUOTE}, which ends a text in this format")
            return f"{_QUOTE}{value}{_QUOTE}"
        case dict():
            items = (f"{key if _KEY.fullmatch(key) else _write(key)}:{_write(item)}" for key, item in value.items())
            return "{" + ",".join(items) + "}"
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
        case None:
            return "None"
        case _:
            return write_json(value)


def _read_call(reply: str, start: int) -> tuple[ToolCall, int]:
    head = _CALL.match(reply, start + len(OPEN))
    if head is None:
        raise MalformedCallError("a call begins with `call:`, a name and `{`", start + len(OPEN))
    arguments, position = _read_value(reply, head.end(), 0)
    position = skip_space(reply, position)
    if not reply.startswith(CLOSE, position):
        raise MalformedCallError(f"no {CLOSE} after the call", position)
    return make_call(head[1], arguments, start), position + len(CLOSE)


def _read_value(reply: str, position: int, depth: int) -> tuple[Json, int]:
    position = skip_space(reply, position)
    if depth > _MAX_DEPTH:
        raise MalformedCallError(f"nested more than {_MAX_DEPTH} deep", position)
    if reply.startswith(_QUOTE, position):
        return _read_text(reply, position)
    if reply.startswith("{", position):
        return _read_object(reply, position, depth)
    if reply.startswith("[", position):
        return _read_list(reply, position, depth)
    if word := _WORD.match(reply, position):
        return _WORDS[word[0]], word.end()
    return read_json(reply, position)


def _read_text(reply: str, position: int) -> tuple[str, int]:
    start = position + len(_QUOTE)
    end = reply.find(_QUOTE, start)
    if end < 0:
        raise MalformedCallError(f"a text without its closing {_QUOTE}", position)
    return reply[start:end], end + len(_QUOTE)


def _read_object(reply: str, position: int, depth: int) -> tuple[Json, int]:
    fields: dict[str, object] = {}
    position = skip_space(reply, position + 1)
    while not reply.startswith("}", position):
        if fields:
            position = _expect(reply, position, ",")
        key, position = _read_key(reply, position)
        if key in fields:
            raise MalformedCallError(f"the field {key!r} is given twice", position)
        value, position = _read_value(reply, _expect(reply, position, ":"), depth + 1)
        fields[key] = value
        position = skip_space(reply, position)
    return fields, position + 1


def _read_list(reply: str, position: int, depth: int) -> tuple[Json, int]:
    items: list[object] = []
    position = skip_space(reply, position + 1)
    while not reply.startswith("]", position):
        if items:
            position = _expect(reply, position, ",")
        item, position = _read_value(reply, position, depth + 1)
        items.append(item)
        position = skip_space(reply, position)
    return items, position + 1


def _read_key(reply: str, position: int) -> tuple[str, int]:
    if reply.startswith(_QUOTE, position):
        return _read_text(reply, position)
    key = _KEY.match(reply, position)
    if key is None:
        raise MalformedCallError("a field without a name", position)
    return key[0], key.end()


def _expect(reply: str, position: int, mark: str) -> int:
    """Where the text goes on after a mark that must stand here."""
    position = skip_space(reply, position)
    if not reply.startswith(mark, position):
        what = "the call is cut off" if position == len(reply) else f"{reply[position]!r}"
        raise MalformedCallError(f"{what} where {mark!r} is expected", position)
    return skip_space(reply, position + 1)
