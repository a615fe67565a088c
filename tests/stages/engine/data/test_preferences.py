"""Rows of preferences in token ids."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from stage_trial import TINY

from stages.engine.data.chat import Chat
from stages.engine.data.preferences import Preferences, make_preferences
from stages.engine.data.records import LabelledRow, Message, PreferenceRow, ToolCall
from stages.engine.data.tokenizer import load_tokenizer
from stages.errors import UserError


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(load_tokenizer(TINY))


def user(content: str) -> Message:
    return Message(role="user", content=content)


def says(content: str) -> Message:
    return Message(role="assistant", content=content)


def pair(name: str, chosen: Sequence[Message] | str, rejected: Sequence[Message] | str) -> PreferenceRow:
    replies = [(says(reply),) if isinstance(reply, str) else tuple(reply) for reply in (chosen, rejected)]
    return PreferenceRow(id=name, messages=(user("1 + 1?"),), chosen=replies[0], rejected=replies[1])


def prepare(
    rows: Sequence[PreferenceRow | LabelledRow], chat: Chat, identical_pairs: Literal["fail", "drop"] = "fail"
) -> Preferences:
    return make_preferences(rows, chat, 100, identical_pairs)


def test_a_pair_is_a_prompt_with_the_chosen_response_first(chat: Chat) -> None:
    found = prepare([pair("a", "2", "three")], chat)
    ((prompt, (chosen, rejected), learnt),) = found.groups
    assert list(prompt) == chat.prompt_ids([user("1 + 1?")])
    assert (list(chosen), list(rejected)) == (chat.response_ids("2"), chat.response_ids("three"))
    assert learnt is not None
    assert [mask.all() for mask in learnt] == [True, True]
    assert (found.ids, found.desirable.tolist(), found.margins.tolist()) == (["a"], [[True, False]], [0.0])


def test_a_labelled_reply_is_a_group_of_one(chat: Chat) -> None:
    rows = [
        LabelledRow(id=str(label), messages=(user("?"),), response=(says("yes"),), label=label)
        for label in (True, False)
    ]
    found = prepare(rows, chat)
    assert found.desirable.tolist() == [[True], [False]]
    assert [list(group.responses[0]) for group in found.groups] == [chat.response_ids("yes")] * 2


def test_of_a_reply_of_several_turns_the_assistants_tokens_are_learnt(chat: Chat) -> None:
    turns = [says("2"), user("sure?"), says("yes")]
    ((prompt, (several, one), learnt),) = prepare([pair("a", turns, "2")], chat).groups
    whole = chat.conversation([user("1 + 1?"), *turns])
    assert [*prompt, *several] == whole.ids[: len(prompt) + len(several)]
    assert learnt is not None
    assert np.asarray(several)[learnt[0]].tolist() == [*chat.response_ids("2"), *chat.response_ids("yes")]
    assert several[-1] == chat.end_id
    assert not learnt[0].all()
    # One turn is the beginning of several.
    assert list(several[: len(one)]) == list(one)


def test_bad_rows_are_named_with_their_reasons_and_counted(chat: Chat) -> None:
    rows = [
        pair("a", "2", " "),
        pair("b", "2", "3"),
        pair("c", "x" * 200, "3"),
        pair("d", "5", "5"),
        pair("e", "", "5"),
    ]
    with pytest.raises(UserError) as error:
        prepare(rows, chat)
    assert str(error.value).startswith("row a: rejected is empty; row c: prompt and chosen have ")
    assert "more than max_tokens = 100; row e: chosen is empty" in str(error.value)
    assert str(error.value).endswith("; so 4 of 5 rows cannot be used")


def test_pairs_of_equal_responses_are_refused_or_left_out_and_counted(chat: Chat) -> None:
    rows = [pair("a", "2", "2"), pair("b", "2", "3")]
    with pytest.raises(UserError, match=r"row a: chosen and rejected are the same \d tokens; identical_pairs: drop"):
        prepare(rows, chat)
    found = prepare(rows, chat, "drop")
    assert (len(found.groups), found.num_identical) == (1, 1)
    with pytest.raises(UserError, match="all 1 pairs have identical responses"):
        prepare(rows[:1], chat, "drop")


def test_a_reply_that_only_calls_a_tool_is_not_empty_but_needs_a_template_that_writes_it(chat: Chat) -> None:
    call = Message(role="assistant", content="", tool_calls=(ToolCall(name="add", arguments={}),))
    with pytest.raises(UserError) as error:
        prepare([pair("a", [call], "2")], chat)
    assert "is empty" not in str(error.value)
