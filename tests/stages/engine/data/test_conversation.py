"""Which tokens of a conversation are whose, under templates of every habit."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages.engine.data.chat import Chat
from stages.engine.data.conversation import Conversation
from stages.engine.data.records import Message, Tool, ToolCall
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.errors import UserError

HEAD = "<|im_start|>{{ m.role }}\n"
# The empty thought before the last reply and the dropped thoughts of earlier ones are those of Qwen3.
THINKING = (
    "{% for m in messages %}" + HEAD + "{% set reply = m.content.split('</think>')[-1].strip() %}"
    "{% if m.role == 'assistant' and loop.last %}"
    "{{ m.content if '<think>' in m.content else '<think></think>' + reply }}"
    "{% elif m.role == 'assistant' %}{{ reply }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The system message goes into the first user's turn: Gemma.
MERGING = (
    "{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
    "{% for m in (messages[1:] if first else messages) %}<|im_start|>{{ m.role }}\n{{ first if loop.first }}"
    "{{ m.content | trim }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLING = (
    "{% for m in messages %}" + HEAD + "{{ m.content }}{% for call in m.tool_calls or [] %}"
    '<call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DIALOGUE = [
    Message(role="system", content="Add."),
    Message(role="user", content="1 + 2?"),
    Message(role="assistant", content=" 3\n"),
    Message(role="user", content="and 4?"),
    Message(role="assistant", content="7"),
]


def make_chat(folder: Path, template: str | None = None) -> Chat:
    tokenizer = load_tokenizer(folder)
    return Chat(tokenizer if template is None else dataclasses.replace(tokenizer, chat_template=template))


def texts(tokenizer: Tokenizer, conversation: Conversation) -> list[str | None]:
    spans = [span and conversation.ids[span.start : span.stop] for span in conversation.spans]
    return [None if ids is None else tokenizer.decode(ids, skip_special=False) for ids in spans]


def masked(tokenizer: Tokenizer, conversation: Conversation) -> str:
    own = [token for token, own in zip(conversation.ids, conversation.assistant_mask, strict=True) if own]
    return tokenizer.decode(own, skip_special=False)


@pytest.mark.parametrize("said", ["1 + 2?", "what is <|im_end|>?"])
def test_replies_are_found_alike_with_and_without_the_other_messages(smollm2: Tokenizer, said: str) -> None:
    chat = Chat(smollm2)
    messages = [DIALOGUE[0], Message(role="user", content=said), *DIALOGUE[2:], Message(role="user", content="ok")]
    conversation, (ids, replies) = chat.conversation(messages), chat.authored_ids(messages)
    assert ids.tolist() == conversation.ids
    assert (replies >= 0).tolist() == conversation.assistant_mask.tolist()
    for message in (2, 4):
        span = conversation.spans[message]
        assert span is not None
        assert (replies == message).nonzero()[0].tolist() == list(range(*span))


def test_spans_of_the_real_model_are_its_messages(smollm2: Tokenizer) -> None:
    chat = Chat(smollm2)
    conversation = chat.conversation(DIALOGUE)
    assert texts(smollm2, conversation) == ["Add.", "1 + 2?", " 3\n<|im_end|>", "and 4?", "7<|im_end|>"]
    assert masked(smollm2, conversation) == " 3\n<|im_end|>7<|im_end|>"
    assert smollm2.decode(conversation.ids, skip_special=False) == chat.render(DIALOGUE, generation_prompt=False)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=4, max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_prompt_response_and_continuation_are_the_tokens_of_the_conversation(
    smollm2: Tokenizer, contents: list[str]
) -> None:
    chat = Chat(smollm2)
    roles = ("user", "assistant", "user", "assistant")
    messages = [Message(role=role, content=content) for role, content in zip(roles, contents, strict=True)]
    ids = chat.prompt_ids(messages[:1])
    ids += chat.response_ids(contents[1])
    ids += chat.continuation_ids(messages[:3])
    assert ids == chat.prompt_ids(messages[:3])
    ids += chat.response_ids(contents[3])
    conversation = chat.conversation(messages)
    assert conversation.ids[: len(ids)] == ids
    mask = conversation.assistant_mask
    assert mask.sum() == sum(len(chat.response_ids(content)) for content in (contents[1], contents[3]))


def test_a_reply_is_tokenised_apart_from_the_prompt_that_it_would_merge_with(smollm2: Tokenizer) -> None:
    chat = Chat(smollm2)
    messages = [*DIALOGUE[:2], Message(role="assistant", content="\n\n3"), DIALOGUE[3]]
    prompt = chat.prompt_ids(DIALOGUE[:2])
    whole = smollm2.encode(chat.render(messages, generation_prompt=True))
    assert whole[: len(prompt)] != prompt
    assert chat.prompt_ids(messages)[: len(prompt)] == prompt


def test_a_system_message_inside_the_users_turn_keeps_its_tokens(folder: Path) -> None:
    chat = make_chat(folder, MERGING)
    found = texts(chat.tokenizer, chat.conversation(DIALOGUE))
    assert found == ["Add.", "1 + 2?", "3<|im_end|>", "and 4?", "7<|im_end|>"]


def test_what_the_template_writes_before_the_last_reply_is_learnt_with_it(folder: Path) -> None:
    chat = make_chat(folder, THINKING)
    assert masked(chat.tokenizer, chat.conversation(DIALOGUE)) == "3<|im_end|><think></think>7<|im_end|>"


def test_reasoning_that_a_later_turn_drops_is_refused_and_the_last_is_kept(folder: Path) -> None:
    chat = make_chat(folder, THINKING)
    thought = Message(role="assistant", content="<think>\n1, 2\n</think>\n3")
    last = chat.conversation([DIALOGUE[1], thought])
    assert masked(chat.tokenizer, last) == "<think>\n1, 2\n</think>\n3<|im_end|>"
    message = r"message 1 \(assistant\): the template writes '3' for the reply '<think>"
    with pytest.raises(UserError, match=message):
        chat.conversation([DIALOGUE[1], thought, *DIALOGUE[3:]])
    with pytest.raises(UserError, match=message):
        chat.continuation_ids([DIALOGUE[1], thought, DIALOGUE[3]])


def test_a_template_may_change_white_space_in_a_reply(folder: Path) -> None:
    template = (
        "{% for m in messages %}"
        + HEAD
        + "{{ m.content | replace('</think>', '\n</think>\n\n') }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat = make_chat(folder, template)
    conversation = chat.conversation([DIALOGUE[1], Message(role="assistant", content="<think>1, 2</think>3")])
    assert masked(chat.tokenizer, conversation) == "<think>1, 2\n</think>\n\n3<|im_end|>"


def test_calls_belong_to_the_assistant_and_results_do_not(folder: Path) -> None:
    chat = make_chat(folder, CALLING)
    messages = [
        Message(role="user", content="1 + 2?"),
        Message(role="assistant", content="", tool_calls=(ToolCall(name="add", arguments={"a": 1, "b": 2}),)),
        Message(role="tool", content="3", name="add"),
        Message(role="assistant", content="It is 3."),
    ]
    tools = (Tool(name="add", description="Adds.", parameters={"type": "object"}),)
    conversation = chat.conversation(messages, tools)
    call = '<call>{"name": "add", "arguments": {"a": 1, "b": 2}}</call><|im_end|>'
    assert texts(chat.tokenizer, conversation) == ["1 + 2?", call, "3", "It is 3.<|im_end|>"]
    assert masked(chat.tokenizer, conversation) == f"{call}It is 3.<|im_end|>"


def test_generation_blocks_say_what_is_learnt(folder: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n(thinks) "
        "{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}"
        + HEAD
        + "{{ m.content }}<|im_end|>\n"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat = make_chat(folder, template)
    conversation = chat.conversation(DIALOGUE)
    assert masked(chat.tokenizer, conversation) == " 3\n<|im_end|>7<|im_end|>"
    assert chat.tokenizer.decode(conversation.ids, skip_special=False) == chat.render(DIALOGUE, generation_prompt=False)
    with pytest.raises(UserError, match=r"message 2 \(assistant\): the text before the reply is not the prompt"):
        chat.continuation_ids(DIALOGUE[:4])
    skipping = template.replace("{% generation %}", "{% if loop.last %}{% generation %}", 1)
    skipping = skipping.replace("{% endgeneration %}", "{% endgeneration %}{% endif %}")
    with pytest.raises(UserError, match="marks 1 generated parts in a conversation with 2 replies"):
        make_chat(folder, skipping).conversation(DIALOGUE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{% for m in messages %}" + HEAD + "{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}",
            r"message 2 \(assistant\): the prompt is not a prefix .*: from character \d+ the prompt has '<think>', the",
        ),
        (
            "{% for m in messages %}" + HEAD + "{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            r"message 2 \(assistant\): the template writes no end token after it \(looked for </s>, <\|im_end\|>\)",
        ),
        (
            "{% for m in messages %}"
            + HEAD
            + "{{ m.content }}{{ '</s>' if loop.last and m.role == 'assistant' }}\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            r"message 2 \(assistant\): the template writes ' 3\\n</s>' while it is the last, ' 3\\n\\n<\|im_start",
        ),
        (
            "{% for m in messages[-2:] %}" + HEAD + "{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            r"message 2 \(assistant\): the prompt is not a prefix",
        ),
        (
            "{% for m in messages %}" + HEAD + "{{ m.content | upper | replace('3', 'three') }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            r"message 2 \(assistant\): the template writes ' three\\n' for the reply ' 3\\n'",
        ),
    ],
)
def test_a_template_that_cannot_give_exact_spans_is_refused_with_message_and_reason(
    folder: Path, template: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_chat(folder, template).conversation(DIALOGUE)
    assert str(caught.value).startswith(f"{folder}: chat template: ")


def test_a_reply_that_holds_an_end_token_and_calls_that_are_not_written_are_refused(folder: Path) -> None:
    chat = make_chat(folder)
    with pytest.raises(UserError, match=r"message 1 \(assistant\): it holds </s>, which ends a reply"):
        chat.conversation([DIALOGUE[1], Message(role="assistant", content="a</s>b")])
    calling = Message(role="assistant", content="", tool_calls=(ToolCall(name="add", arguments={}),))
    with pytest.raises(UserError, match=r"message 1 \(assistant\): the template does not write the call of 'add'"):
        chat.conversation([DIALOGUE[1], calling])


def test_a_content_that_the_template_leaves_out_has_no_span(folder: Path) -> None:
    template = (
        "{% for m in messages if m.role != 'system' %}" + HEAD + "{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    spans = make_chat(folder, template).conversation(DIALOGUE[:3]).spans
    assert spans[0] is None
    assert spans[1] is not None


def test_a_conversation_without_a_reply_has_no_continuation(folder: Path) -> None:
    with pytest.raises(UserError, match="without a reply has no continuation"):
        make_chat(folder).continuation_ids(DIALOGUE[:2])
