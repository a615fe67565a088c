"""Calls in the notation of Llama 3."""

import pytest

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.catalog import FORMATS
from stages.engine.data.tool_calls.turn import ToolCallError, ToolTurn

FORMAT = FORMATS["llama"]
ADD = ToolCall(name="add", arguments={"a": 1})
WRITTEN = '{"name": "add", "parameters": {"a": 1}}'


def test_a_call_is_written_as_the_templates_of_llama_do() -> None:
    assert FORMAT.render([ADD]) == WRITTEN


@pytest.mark.parametrize(
    ("reply", "turn"),
    [
        (f" {WRITTEN}\n", ToolTurn("", (ADD,))),
        ('{"type": "function", "name": "add", "parameters": {"a": 1}}', ToolTurn("", (ADD,))),
        (f"{WRITTEN}; {WRITTEN}", ToolTurn("", (ADD, ADD))),
        (f"<|python_tag|>{WRITTEN}", ToolTurn("", (ADD,))),
        (
            'Searching. <|python_tag|>brave_search.call(query="jax é")',
            ToolTurn("Searching.", (ToolCall(name="brave_search", arguments={"query": "jax é"}),)),
        ),
        (
            "<|python_tag|>import math\nprint(math.pi)",
            ToolTurn("", (ToolCall(name="code_interpreter", arguments={"code": "import math\nprint(math.pi)"}),)),
        ),
    ],
)
def test_every_form_of_a_call_is_read(reply: str, turn: ToolTurn) -> None:
    assert FORMAT.parse(reply) == turn


@pytest.mark.parametrize("reply", ['{"name": "Ann", "age": 3}', f"I call {WRITTEN}"])
def test_json_that_is_an_answer_stays_text(reply: str) -> None:
    assert FORMAT.parse(reply) == ToolTurn(reply, ())


@pytest.mark.parametrize(
    ("reply", "reason", "position"),
    [
        ('{"name": "add", "parameters": {"a": ', "the JSON is cut off", 36),
        (f"{WRITTEN} done", "text after the call", 40),
        (f'{WRITTEN}; {{"name": 1}}', "a call is an object with `name` and `parameters`", 41),
        ('<|python_tag|>{"a": 1}', "a call is an object with `name` and `parameters`", 14),
        ('<|python_tag|>search.call(query="a', "no Python call: unterminated string", 32),
        ("<|python_tag|>search.call(query)", "an argument without a name", 26),
    ],
)
def test_a_malformed_call_is_an_error_with_its_place(reply: str, reason: str, position: int) -> None:
    error = FORMAT.parse(reply)
    assert isinstance(error, ToolCallError)
    assert reason in error.reason
    assert error.position == position
