"""Turns of conversations as they are published: OpenAI's messages, ShareGPT's, and tools in either."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import ValidationError

from stages.engine.data.formats.fields import BadRowError, parsed, shown
from stages.engine.data.records import Message, Tool, ToolCall, first_problem

Role = Literal["system", "user", "assistant", "tool"]

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "ipython": "tool",
}
CALLS = ("function_call", "tool_call")
"""Roles of turns that are nothing but calls, as JSON."""
NOT_UNDERSTOOD = ("reasoning_content", "reasoning", "thinking", "images", "audios", "videos", "audio")
"""Parts of a turn without which it would be another one."""


class Turn(NamedTuple):
    """A message, and whether it may be learnt from."""

    message: Message
    learnt: bool


def read_turns(value: object) -> list[Turn]:
    """The turns of a list of messages.

    Raises:
        BadRowError: a turn is none; the message says which.
    """
    turns = parsed(value)
    if not isinstance(turns, list):
        raise BadRowError(f"expected a list of messages, not {shown(turns)}")
    return [_read_turn(turn, number) for number, turn in enumerate(turns)]


def read_messages(value: object) -> tuple[Message, ...]:
    """The messages of a list, or of one message alone."""
    return tuple(turn.message for turn in read_turns([value] if isinstance(value, dict) else value))


def read_tools(value: object) -> tuple[Tool, ...]:
    """Tools as JSON or in text, each a function's description or OpenAI's object around it.

    Raises:
        BadRowError: it is none.
    """
    if value is None or value == "":
        return ()
    tools = parsed(value)
    if not isinstance(tools, list):
        raise BadRowError(f"tools: expected a list, not {shown(tools)}")
    return tuple(_read_tool(tool) for tool in tools)


def _read_tool(value: object) -> Tool:
    tool = parsed(value)
    described = tool.get("function", tool) if isinstance(tool, dict) else tool
    if not isinstance(described, dict) or not isinstance(described.get("name"), str):
        raise BadRowError(f"tools: expected an object with `name` and `parameters`, not {shown(tool)}")
    try:
        return Tool.model_validate(
            {
                "name": described["name"],
                "description": _text(described.get("description"), "tools: description"),
                "parameters": _object(described.get("parameters"), "tools: parameters"),
            }
        )
    except ValidationError as error:
        raise BadRowError(f"tools: {first_problem(error)}") from error


def _read_turn(turn: object, number: int) -> Turn:
    try:
        if not isinstance(turn, dict):
            raise BadRowError(f"expected an object with `role` and `content`, not {shown(turn)}")
        if odd := [name for name in NOT_UNDERSTOOD if turn.get(name)]:
            raise BadRowError(f"it has `{odd[0]}`, which would be lost")
        return Turn(_message(turn), _weight(turn) != 0)
    except (BadRowError, ValidationError) as error:
        told = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise BadRowError(f"message {number}: {told}") from error


def _message(turn: Mapping[str, object]) -> Message:
    named = turn.get("role", turn.get("from"))
    role = ROLES.get(named) if isinstance(named, str) else None
    if role is None:
        raise BadRowError(f"its role is {shown(named)}; known are {', '.join(ROLES)}")
    content = turn.get("content", turn.get("value"))
    if named in CALLS:
        return Message(role=role, content="", tool_calls=_calls(content))
    call = turn.get("function_call")
    calls = _calls(turn.get("tool_calls") or ([] if call is None else [call]))
    if content is None and not calls:
        raise BadRowError("it has no `content`")
    return Message(
        role=role,
        content=_content(content),
        tool_calls=calls,
        tool_call_id=_optional(turn.get("tool_call_id")) if role == "tool" else None,
        name=_optional(turn.get("name")),
    )


def _content(content: object) -> str:
    """Text, or parts of which each is text."""
    if not isinstance(content, list):
        return _text(content, "content")
    texts: list[str] = []
    for part in content:
        text = part.get("text", part.get("value")) if isinstance(part, dict) and part.get("type") == "text" else part
        if not isinstance(text, str):
            raise BadRowError(f"content: only parts of text are understood, not {shown(part)}")
        texts.append(text)
    return "".join(texts)


def _calls(value: object) -> tuple[ToolCall, ...]:
    calls = parsed(value)
    return tuple(_call(parsed(call)) for call in (calls if isinstance(calls, list) else [calls]))


def _call(value: object) -> ToolCall:
    function = value.get("function", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRowError(f"expected a call with `name` and `arguments`, not {shown(value)}")
    arguments = function.get("arguments", function.get("parameters"))
    named = {"name": function["name"], "arguments": _object(arguments, "arguments")}
    return ToolCall.model_validate({**named, "id": _optional(value.get("id"))})


def _weight(turn: Mapping[str, object]) -> float:
    weight = turn.get("weight", turn.get("loss_weight"))
    if weight is None:
        return 1.0
    if weight not in (0, 1):
        raise BadRowError(f"a weight is 0 or 1, not {shown(weight)}")
    return float(weight == 1)


def _object(value: object, what: str) -> dict[str, object]:
    found = parsed(value) if value != "" else None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadRowError(f"{what}: expected an object, not {shown(found)}")
    return found


def _text(value: object, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRowError(f"{what}: expected text, not {shown(value)}")
    return value


def _optional(value: object) -> str | None:
    return None if value is None or value == "" else _text(value, "id or name")


def common_beginning(first: Sequence[Message], second: Sequence[Message]) -> int:
    """How many messages two conversations share before the assistant's turns in which they differ."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    while shared and first[shared - 1].role == "assistant":
        shared -= 1
    return shared
