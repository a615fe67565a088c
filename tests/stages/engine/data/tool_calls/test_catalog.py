"""A model's format is told by its template."""

import pytest

from stages.engine.data.chat_template import ChatTemplate
from stages.engine.data.tool_calls.catalog import FORMATS, find_format
from stages.errors import UserError


def make_template(source: str) -> ChatTemplate:
    return ChatTemplate("{% raw %}" + source + "{% endraw %}", "folder", "", "")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('<tool_call>\n{"name": "x", "arguments": {}}\n</tool_call>', "qwen"),
        ('<|start_header_id|>{"name": "x", "parameters": {}}', "llama"),
        ("<start_of_turn>user", "gemma"),
        ("<start_of_turn><start_function_call>call:", "function_gemma"),
    ],
)
def test_each_format_is_recognised(source: str, name: str) -> None:
    assert find_format(make_template(source)) is FORMATS[name]


@pytest.mark.parametrize("source", ["<|im_start|>user", '<tool_call><function=x> "arguments": ', "[TOOL_CALLS]"])
def test_another_notation_is_an_error_that_lists_the_known_ones(source: str) -> None:
    with pytest.raises(UserError, match=r"^folder: .*\(qwen, llama, gemma, function_gemma\)$"):
        find_format(make_template(source))
