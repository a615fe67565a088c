"""Calls as Llama 3.1, 3.2 and 3.3 write them: a turn that is JSON, or one that begins with `<|python_tag|>`.

After the tag stands JSON, a built-in tool's `name.call(argument=value)`, or a program for the code interpreter. Source:
the published prompt formats of Llama 3.1 to 3.3.
"""

import re
from collections.abc import Sequence

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.json_value import read_json, skip_space, write_json
from stages.engine.data.tool_calls.python_calls import read_python_calls
from stages.engine.data.tool_calls.turn import MalformedCallError, ToolTurn, make_call

TAG = "<|python_tag|>"
CODE_INTERPRETER = "code_interpreter"
"""Name of the call of a program, whose only argument is `code`."""

_SEPARATOR = "; "
_FIELDS = {"name", "parameters"}
_WRONG_FIELDS = "a call is an object with `name` and `parameters`"
_JSON_CALL = re.compile(r'\s*\{\s*("type"\s*:\s*"function"\s*,\s*)?"name"\s*:')
_BUILT_IN = re.compile(r"\s*(\w+)\.call\(")


def read_turn(reply: str) -> ToolTurn:
    """See `ToolCallFormat.read`; JSON that names no parameters is an answer in JSON."""
    content, tag, after = reply.partition(TAG)
    if not tag:
        calls = _read_json_calls(reply, 0) if _JSON_CALL.match(reply) else ()
        return ToolTurn("" if calls else reply, calls)
    start = len(content) + len(tag)
    content = content.strip()
    if after.lstrip().startswith("{"):
        calls = _read_json_calls(reply, start)
        if not calls:
            raise MalformedCallError(_WRONG_FIELDS, start)
        return ToolTurn(content, calls)
    if built_in := _BUILT_IN.match(after):
        source = f"{built_in[1]}({after[built_in.end() :]}"
        return ToolTurn(content, read_python_calls(source, start + len(built_in[0]) - len(built_in[1]) - 1))
    return ToolTurn(content, (make_call(CODE_INTERPRETER, {"code": after}, start),))


def render_calls(calls: Sequence[ToolCall]) -> str:
    """See `ToolCallFormat.render`."""
    return _SEPARATOR.join(
        f'{{"name": {write_json(call.name)}, "parameters": {write_json(call.arguments)}}}' for call in calls
    )


def _read_json_calls(reply: str, position: int) -> tuple[ToolCall, ...]:
    """The calls that the rest of a reply is; none for JSON that is no call."""
    calls: list[ToolCall] = []
    while True:
        start = skip_space(reply, position)
        value, end = read_json(reply, start)
        if not isinstance(value, dict) or not _FIELDS <= set(value) <= _FIELDS | {"type"}:
            if calls:
                raise MalformedCallError(_WRONG_FIELDS, start)
            return ()
        calls.append(make_call(value["name"], value["parameters"], start))
        position = skip_space(reply, end)
        if position == len(reply):
            return tuple(calls)
        if reply[position] != _SEPARATOR[0]:
            raise MalformedCallError("text after the call", position)
        position += 1
