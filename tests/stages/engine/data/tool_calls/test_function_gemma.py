"""Calls in the notation of FunctionGemma."""

import pytest

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.catalog import FORMATS
from stages.engine.data.tool_calls.turn import ToolCallError, ToolTurn
from stages.errors import UserError

FORMAT = FORMATS["function_gemma"]
OPEN, CLOSE = "<start_function_call>", "<end_function_call>"
CALL = ToolCall(name="get-time", arguments={"city": "Rome, {it}", "days": [1, -2.5], "o": {"b": True, "n n": None}})
WRITTEN = (
    f"{OPEN}call:get-time{{city:<escape>Rome, {{it}}<escape>,days:[1,-2.5],"
    f"o:{{b:true,<escape>n n<escape>:None}}}}{CLOSE}"
)


def test_a_call_is_written_as_the_template_does() -> None:
    assert FORMAT.render([CALL]) == WRITTEN


def test_calls_and_the_text_around_them_are_read() -> None:
    assert FORMAT.parse(f"Look: {WRITTEN}{WRITTEN}") == ToolTurn("Look:", (CALL, CALL))
    spaced = f"{OPEN} call:f {{ a : [ ] , b : {{ }} }} {CLOSE}"
    assert FORMAT.parse(spaced) == ToolTurn("", (ToolCall(name="f", arguments={"a": [], "b": {}}),))


@pytest.mark.parametrize(
    ("call", "reason", "position"),
    [
        ("", "a call begins with `call:`, a name and `{`", 0),
        ("call:f", "a call begins with", 0),
        ("call:f{a:1", "the call is cut off where ',' is expected", 10),
        ("call:f{a:1;b:2}", "';' where ',' is expected", 10),
        ("call:f{a}", "'}' where ':' is expected", 8),
        ("call:f{a:<escape>x}", "a text without its closing <escape>", 9),
        ("call:f{a:1,a:2}", "the field 'a' is given twice", 12),
        ("call:f{a:[1 2]}", "'2' where ',' is expected", 12),
        ("call:f{a:1,}", "a field without a name", 11),
        ("call:f{a:x}", "bad JSON", 9),
        ("call:f{a:" + "[" * 70, "nested more than 64 deep", 73),
        ("call:f{a:1}", f"no {CLOSE} after the call", 11),
    ],
)
def test_a_malformed_call_is_an_error_with_its_place(call: str, reason: str, position: int) -> None:
    error = FORMAT.parse(OPEN + call)
    assert isinstance(error, ToolCallError)
    assert reason in error.reason
    assert error.position == len(OPEN) + position


def test_what_the_notation_cannot_express_is_refused() -> None:
    with pytest.raises(UserError, match="holds <escape>"):
        FORMAT.render([ToolCall(name="f", arguments={"a": "<escape>"})])
    with pytest.raises(UserError, match="a tool named 'a b' cannot be called"):
        FORMAT.render([ToolCall(name="a b", arguments={})])
