"""Calls as Qwen2.5, Qwen3 and Hermes write them: JSON in `<tool_call>` tags, one pair for each call.

Source: the chat templates of Qwen2.5-Instruct and Qwen3; Hermes function calling, NousResearch.
"""

from collections.abc import Sequence

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.json_value import read_json, skip_space, write_json
from stages.engine.data.tool_calls.turn import MalformedCallError, ToolTurn, make_call, outside

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_THINK, _END_OF_THOUGHT = "<think>", "</think>"


def read_turn(reply: str) -> ToolTurn:
    """See `ToolCallFormat.read`; a call that a thought considers is none."""
    said: list[str] = []
    calls: list[ToolCall] = []
    done, search = 0, _after_thought(reply)
    while (start := reply.find(OPEN, search)) >= 0:
        said.append(reply[done:start])
        call, done = _read_call(reply, start)
        calls.append(call)
        search = done
    return ToolTurn(outside([*said, reply[done:]]), tuple(calls)) if calls else ToolTurn(reply, ())


def render_calls(calls: Sequence[ToolCall]) -> str:
    """See `ToolCallFormat.render`."""
    return "\n".join(
        f'{OPEN}\n{{"name": {write_json(call.name)}, "arguments": {write_json(call.arguments)}}}\n{CLOSE}'
        for call in calls
    )


def _after_thought(reply: str) -> int:
    if not reply.lstrip().startswith(_THINK):
        return 0
    end = reply.find(_END_OF_THOUGHT)
    return len(reply) if end < 0 else end


def _read_call(reply: str, start: int) -> tuple[ToolCall, int]:
    value, position = read_json(reply, start + len(OPEN))
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise MalformedCallError("a call is an object with `name` and `arguments`", start)
    position = skip_space(reply, position)
    if not reply.startswith(CLOSE, position):
        raise MalformedCallError(f"no {CLOSE} after the call", position)
    return make_call(value["name"], value["arguments"], start), position + len(CLOSE)
