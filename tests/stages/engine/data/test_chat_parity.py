"""The text of conversations, and masks from `generation` blocks, are those of `transformers`."""

import dataclasses
from pathlib import Path

import pytest
from vocabularies import chat_templates

from stages.engine.data.chat import Chat
from stages.engine.data.chat_template import ChatTemplate
from stages.engine.data.records import Message, Tool, ToolCall
from stages.engine.data.tokenizer import load_tokenizer
from stages.errors import UserError

pytestmark = pytest.mark.slow

TOOL = Tool(name="add", description="Adds <a>.", parameters={"type": "object", "properties": {"a": {"type": "number"}}})
CALL = ToolCall(name="add", arguments={"a": 1, "text": "é"}, id="123456789")
MESSAGES = [
    Message(role="user", content=" one "),
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="3", tool_call_id="123456789", name="add"),
    Message(role="assistant", content="two"),
    Message(role="user", content="three"),
]
AS_DICTS = [
    {"role": "user", "content": " one "},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": CALL.id, "type": "function", "function": {"name": "add", "arguments": CALL.arguments}}],
    },
    {"role": "tool", "content": "3", "tool_call_id": "123456789", "name": "add"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]
PLAIN = (0, 3, 4)
TOOL_AS_DICT = {"type": "function", "function": TOOL.model_dump()}
# They write today's date where they can.
DATED = {"meta-llama-Llama-3.2-3B-Instruct", "muse-glimmer"}
BLOCKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("generation_prompt", [False, True])
def test_published_templates_write_the_same_text(folder: Path, with_tools: bool, generation_prompt: bool) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )
    chosen = range(5) if with_tools else PLAIN
    messages, dicts = [MESSAGES[index] for index in chosen], [AS_DICTS[index] for index in chosen]
    compared = 0
    for path in sorted(chat_templates().glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        try:
            ours = ChatTemplate(source, path.stem, "<s>", "</s>").render(
                messages, (TOOL,) if with_tools else (), generation_prompt=generation_prompt
            )
        except UserError:
            continue
        if path.stem in DATED or (not with_tools and path.stem.endswith("tool_use")):
            continue
        expected = theirs.apply_chat_template(
            dicts,
            tools=[TOOL_AS_DICT] if with_tools else None,
            chat_template=source,
            tokenize=False,
            add_generation_prompt=generation_prompt,
        )
        assert ours.text == expected, path.stem
        compared += 1
    assert compared > 40


def test_masks_of_generation_blocks_are_the_same(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )
    expected = theirs.apply_chat_template(
        [AS_DICTS[index] for index in PLAIN],
        chat_template=BLOCKS,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    chat = Chat(dataclasses.replace(load_tokenizer(folder), chat_template=BLOCKS))
    conversation = chat.conversation([MESSAGES[index] for index in PLAIN])
    assert conversation.ids == expected["input_ids"]
    assert conversation.assistant_mask.astype(int).tolist() == expected["assistant_masks"]
