"""Calls as Gemma 3 is asked to write them: Python calls in a ```` ```tool_code ```` block, or a turn that is a list.

Gemma 2 and 3 have no token of their own for it; the prompt asks for the form. Source: Google's guides to function
calling with Gemma.
"""

import re
from collections.abc import Sequence

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.python_calls import read_python_calls, write_python_call
from stages.engine.data.tool_calls.turn import MalformedCallError, ToolTurn, outside

OPEN, CLOSE = "```tool_code", "```"

_OPENING = re.compile(r"^```tool_code[^\S\n]*(\n|$)", re.MULTILINE)
_CLOSING = re.compile(r"^```[^\S\n]*$", re.MULTILINE)
_LIST = re.compile(r"\s*\[\s*[A-Za-z_][\w.]*\(")


def read_turn(reply: str) -> ToolTurn:
    """See `ToolCallFormat.read`."""
    if _LIST.match(reply):
        return ToolTurn("", read_python_calls(reply, 0))
    said: list[str] = []
    calls: list[ToolCall] = []
    done = 0
    while opening := _OPENING.search(reply, done):
        closing = _CLOSING.search(reply, opening.end())
        if closing is None:
            raise MalformedCallError(f"no {CLOSE} after the calls", len(reply))
        said.append(reply[done : opening.start()])
        calls += read_python_calls(reply[opening.end() : closing.start()], opening.end())
        done = closing.end()
    return ToolTurn(outside([*said, reply[done:]]), tuple(calls)) if calls else ToolTurn(reply, ())


def render_calls(calls: Sequence[ToolCall]) -> str:
    """See `ToolCallFormat.render`."""
    if not calls:
        return ""
    return "\n".join([OPEN, *map(write_python_call, calls), CLOSE])
