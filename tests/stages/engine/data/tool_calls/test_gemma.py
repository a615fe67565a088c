"""Calls in Python, as Gemma is asked for them."""

import pytest

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.catalog import FORMATS
from stages.engine.data.tool_calls.turn import ToolCallError, ToolTurn
from stages.errors import UserError

FORMAT = FORMATS["gemma"]
ADD = ToolCall(name="math.add", arguments={"a": -1, "b": [True, None], "c d": {"e": "é\n"}})
WRITTEN = '```tool_code\nmath.add(a=-1, b=[True, None], **{"c d": {"e": "é\\n"}})\n```'


def test_a_call_is_one_line_of_python() -> None:
    assert FORMAT.render([ADD]) == WRITTEN
    assert FORMAT.render([]) == ""


@pytest.mark.parametrize(
    ("reply", "turn"),
    [
        (f"I add.\n{WRITTEN}\nThere.", ToolTurn("I add.\nThere.", (ADD,))),
        (
            "```tool_code\nf()\ng(x=(1, 2.5))\n```",
            ToolTurn("", (ToolCall(name="f", arguments={}), ToolCall(name="g", arguments={"x": [1, 2.5]}))),
        ),
        ('[f(), g(x="]")]', ToolTurn("", (ToolCall(name="f", arguments={}), ToolCall(name="g", arguments={"x": "]"})))),
        ("see `tool_code`", ToolTurn("see `tool_code`", ())),
    ],
)
def test_blocks_and_lists_are_read(reply: str, turn: ToolTurn) -> None:
    assert FORMAT.parse(reply) == turn


@pytest.mark.parametrize(
    ("reply", "reason", "position"),
    [
        ("```tool_code\nf(a=1)", "no ``` after the calls", 19),
        ("```tool_code\n\n```", "no call where one is announced", 13),
        ("```tool_code\nf(1)\n```", "an argument without a name", 15),
        ("```tool_code\nx = f(a=1)\n```", "something other than a call", 13),
        ("```tool_code\nf(a='é')\nf(a=open('x'))\n```", "a value that is no literal", 26),
        ("```tool_code\nf(é='é', b=__import__('os').getcwd())\n```", "a value that is no literal", 24),
        ("```tool_code\nf(a=1, a=2)\n```", "given twice", 22),
        ("```tool_code\nf(a=1, **[2])\n```", "an argument without a name", 22),
        ("```tool_code\nf(a={1: 2})\n```", "a value that is no literal", 17),
        ("```tool_code\n(lambda: 1)(a=2)\n```", "the call has no name", 14),
        ("```tool_code\nf(a=1e999)\n```", "the arguments of 'f': Input should be a finite number", 13),
        ("[f(a=1", "no Python call: '(' was never closed", 2),
    ],
)
def test_a_malformed_call_is_an_error_with_its_place(reply: str, reason: str, position: int) -> None:
    error = FORMAT.parse(reply)
    assert isinstance(error, ToolCallError)
    assert reason in error.reason
    assert error.position == position


@pytest.mark.parametrize("name", ["get-weather", "class", "ﬁnd", "a."])
def test_a_tool_without_a_python_name_cannot_be_written(name: str) -> None:
    with pytest.raises(UserError, match="cannot be called in Python"):
        FORMAT.render([ToolCall(name=name, arguments={})])
