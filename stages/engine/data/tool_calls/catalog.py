"""Which format a model writes its calls in, told by its chat template."""

from stages.engine.data.chat_template import ChatTemplate
from stages.engine.data.tool_calls import function_gemma, gemma, llama, qwen
from stages.engine.data.tool_calls.turn import ToolCallFormat
from stages.errors import UserError

FORMATS = {
    "qwen": ToolCallFormat("qwen", qwen.read_turn, qwen.render_calls),
    "llama": ToolCallFormat("llama", llama.read_turn, llama.render_calls),
    "gemma": ToolCallFormat("gemma", gemma.read_turn, gemma.render_calls),
    "function_gemma": ToolCallFormat("function_gemma", function_gemma.read_turn, function_gemma.render_calls),
}

_SIGNS = (
    ("function_gemma", (function_gemma.OPEN,), ()),
    # Qwen3-Coder and others put their own notation into the same tags.
    ("qwen", (qwen.OPEN, '"arguments": '), ("<function=", "<arg_key>", "<tool_calls>")),
    ("llama", ("<|start_header_id|>", '"parameters": '), ("<function=",)),
    ("gemma", ("<start_of_turn>",), ()),
)
"""A format, what its templates hold, and what none of them holds."""


def find_format(template: ChatTemplate) -> ToolCallFormat:
    """The format that a model's template writes calls in.

    Raises:
        UserError: it is none of those known here.
    """
    for name, present, absent in _SIGNS:
        if all(sign in template.source for sign in present) and not any(sign in template.source for sign in absent):
            return FORMATS[name]
    raise UserError(
        f"{template.origin}: the chat template shows none of the known formats of tool calls ({', '.join(FORMATS)})"
    )
