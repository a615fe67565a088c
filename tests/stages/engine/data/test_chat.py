"""Conversations as token ids."""

import dataclasses
from pathlib import Path

import pytest

from stages.engine.data.chat import Chat
from stages.engine.data.records import Message
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.errors import UserError

QUESTION = [Message(role="user", content="What is 12 + 3?")]


def with_template(folder: Path, template: str | None) -> Tokenizer:
    return dataclasses.replace(load_tokenizer(folder), chat_template=template)


def test_the_real_models_prompt_is_its_templates_text(smollm2: Tokenizer) -> None:
    chat = Chat(smollm2)
    assert chat.render(QUESTION, generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is 12 + 3?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = chat.prompt_ids([Message(role="system", content="Add."), *QUESTION])
    expected = [1, 9690, 198, 7684, 30, 2, 198]  # system turn
    expected += [1, 4093, 198, 1780, 314, 216, 33, 34, 1232, 216, 35, 47, 2, 198]  # user turn
    expected += [1, 520, 9531, 198]
    assert ids == expected


def test_a_response_ends_with_the_end_of_the_turn(smollm2: Tokenizer) -> None:
    chat = Chat(smollm2)
    assert chat.response_ids("-15") == [29, 33, 37, 2]
    assert chat.reply_text([29, 33, 37, 2]) == "-15"


def test_the_end_token_is_the_one_that_the_template_writes(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_id == 257
    assert Chat(tokenizer).end_id == 260
    assert Chat(dataclasses.replace(tokenizer, eos_ids=frozenset({257}))).end_id == 257


def test_templates_may_use_special_tokens_json_and_loop_controls(folder: Path) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m | tojson }}{% endfor %}{{ eos_token }}"
    )
    chat = Chat(with_template(folder, template))
    turns = [Message(role="user", content="<é>"), Message(role="user", content="second")]
    assert chat.render(turns, generation_prompt=True) == '<s>{"role": "user", "content": "<é>"}</s>'


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{% for %}", "chat template: "),
        ("{{ raise_exception('only system turns') }}", "chat template: only system turns"),
        ("{{ strftime_now('%d') }}", "'strftime_now' is undefined"),
        ("{{ messages.append(1) }}", "chat template: .*unsafe|not safe"),
        ("{{ messages.__class__.__mro__ }}", "chat template: .*unsafe"),
    ],
)
def test_a_template_that_fails_or_reaches_out_is_an_error_with_the_models_name(
    folder: Path, template: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Chat(with_template(folder, template))
    assert str(folder) in str(caught.value)
