"""Calls in the notation of Qwen and Hermes."""

import pytest

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.catalog import FORMATS
from stages.engine.data.tool_calls.turn import ToolCallError, ToolTurn

FORMAT = FORMATS["qwen"]
ADD = ToolCall(name="add", arguments={"a": 1, "b": [2.5]})
WRITTEN = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2.5]}}\n</tool_call>'


def test_a_call_is_written_as_the_templates_of_qwen_do() -> None:
    assert FORMAT.render([ADD]) == WRITTEN


def test_several_calls_and_the_text_before_them_are_read() -> None:
    assert FORMAT.parse(f"I add.\n{WRITTEN}\n{WRITTEN}") == ToolTurn("I add.", (ADD, ADD))
    assert FORMAT.parse(f"{WRITTEN} then") == ToolTurn("then", (ADD,))


def test_a_tag_inside_an_argument_ends_nothing() -> None:
    call = ToolCall(name="say", arguments={"text": "</tool_call><tool_call>"})
    assert FORMAT.parse(FORMAT.render([call])) == ToolTurn("", (call,))


def test_a_call_that_a_thought_considers_is_none() -> None:
    thought = f"<think>\nmaybe {WRITTEN}\n</think>"
    assert FORMAT.parse(f"{thought}\n\n3") == ToolTurn(f"{thought}\n\n3", ())
    assert FORMAT.parse("<think>\n<tool_call>") == ToolTurn("<think>\n<tool_call>", ())
    assert FORMAT.parse(f"{thought}\n\n{WRITTEN}") == ToolTurn(thought, (ADD,))


@pytest.mark.parametrize(
    ("reply", "reason", "position"),
    [
        ("a <tool_call>", "the JSON is cut off", 13),
        ('<tool_call>{"name": "add"', "the JSON is cut off", 25),
        ('<tool_call>{"name": "add", }</tool_call>', "bad JSON", 27),
        ('<tool_call>{"name": "add"}</tool_call>', "a call is an object with `name` and `arguments`", 0),
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>', "the call has no name", 0),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "the arguments of 'f' are not an object", 0),
        ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', "the arguments of 'f' are not an object", 0),
        ('<tool_call>{"name": "f", "arguments": {}} </tool>', "no </tool_call> after the call", 42),
        ('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "NaN is no JSON", 11),
        ('<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', "the arguments of 'f': Input should be", 0),
        ('<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>', "a field is given twice", 11),
        ('<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>', "half a character", 0),
    ],
)
def test_a_malformed_call_is_an_error_with_its_place(reply: str, reason: str, position: int) -> None:
    error = FORMAT.parse(reply)
    assert isinstance(error, ToolCallError)
    assert reason in error.reason
    assert error.position == position
