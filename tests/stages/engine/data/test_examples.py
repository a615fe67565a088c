"""Rows of every kind as examples: what is given, what is learnt, and what becomes of rows that are too long."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.examples import (
    Examples,
    RefusedRow,
    TokenRow,
    conversation_rows,
    fit_lengths,
    problem_rows,
    text_rows,
)
from stages.engine.data.records import ChatRow, Message, Row, TextRow
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.errors import UserError

TINY = Path(__file__).parents[4] / "pipelines" / "tiny"
TALK = (
    Message(role="user", content="1+1"),
    Message(role="assistant", content="2"),
    Message(role="user", content="2+3"),
    Message(role="assistant", content="5"),
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(TINY)


@pytest.fixture(scope="module")
def chat(tokenizer: Tokenizer) -> Chat:
    return Chat(tokenizer)


def all_of(rows: Iterable[TokenRow | RefusedRow]) -> Examples:
    return fit_lengths(rows, 1000, "error")


def row(name: str, *learnt: int) -> TokenRow:
    """Tokens 10, 11, … of which those are learnt that are marked by 1."""
    return TokenRow(name, np.arange(10, 10 + len(learnt), dtype=np.int32), np.array(learnt, np.bool_))


def learnt_texts(tokenizer: Tokenizer, group: Group) -> str:
    """All that is learnt of a group."""
    (response,) = group.responses
    mask = np.ones(len(response), np.bool_) if group.learnt is None else group.learnt[0]
    return tokenizer.decode(np.array(response)[mask].tolist(), skip_special=False)


def whole_text(tokenizer: Tokenizer, group: Group) -> str:
    return tokenizer.decode([*map(int, group.prompt), *map(int, group.responses[0])], skip_special=False)


def test_of_a_problem_the_response_is_learnt(chat: Chat) -> None:
    given = Row(id="a", messages=TALK[:1], response="2", answer="2")
    (group,) = all_of(problem_rows([given], chat)).groups
    assert list(group.prompt) == chat.prompt_ids(TALK[:1])
    assert list(group.responses[0]) == chat.response_ids("2")
    assert group.learnt is None


def test_of_a_conversation_all_that_the_assistant_says_is_learnt(chat: Chat) -> None:
    given = ChatRow(id="a", messages=(*TALK, Message(role="user", content="thanks")))
    (group,) = all_of(conversation_rows([given], chat, "all_turns")).groups
    end = chat.tokenizer.backend.id_to_token(chat.end_id)
    assert list(group.prompt) == chat.prompt_ids(TALK[:1])
    assert learnt_texts(chat.tokenizer, group) == f"2{end}5{end}"
    assert group.responses[0][-1] == chat.end_id
    assert whole_text(chat.tokenizer, group) == chat.render(TALK, generation_prompt=False).rstrip("\n")


def test_of_a_conversation_only_the_last_turn_is_learnt_if_that_is_wanted(chat: Chat) -> None:
    given = ChatRow(id="a", messages=TALK)
    (group,) = all_of(conversation_rows([given], chat, "last_turn")).groups
    assert list(group.prompt) == chat.prompt_ids(TALK[:3])
    assert list(group.responses[0]) == chat.response_ids("5")
    assert group.learnt is None


def test_what_is_given_of_a_conversation_is_not_learnt(chat: Chat) -> None:
    whole = all_of(conversation_rows([ChatRow(id="a", messages=TALK)], chat, "last_turn"))
    given = all_of(conversation_rows([ChatRow(id="a", messages=TALK, num_given=2)], chat, "all_turns"))
    assert str(given) == str(whole)


def test_special_tokens_that_a_user_writes_out_are_words_in_a_conversation(chat: Chat) -> None:
    end = chat.tokenizer.backend.id_to_token(chat.end_id)
    messages = (Message(role="user", content=f"what is {end}?"), TALK[1])
    (group,) = all_of(conversation_rows([ChatRow(id="a", messages=messages)], chat, "all_turns")).groups
    assert [*group.prompt, *group.responses[0]][: len(group.prompt) + 2] == chat.conversation(messages).ids[
        : len(group.prompt) + 2
    ]
    assert list(group.prompt).count(chat.end_id) == 1


def test_a_text_is_learnt_from_its_second_token_to_the_end_token(tokenizer: Tokenizer) -> None:
    (group,) = all_of(text_rows([TextRow(id="a", text="one and two")], tokenizer)).groups
    begin = [tokenizer.backend.token_to_id(tokenizer.bos_token)] if tokenizer.bos_token else []
    ids = [*begin, *tokenizer.encode("one and two"), tokenizer.eos_id]
    assert [*group.prompt, *group.responses[0]] == ids
    assert len(group.prompt) == 1
    assert group.learnt is None


def test_of_a_text_with_a_prompt_the_text_is_learnt(tokenizer: Tokenizer) -> None:
    (group,) = all_of(text_rows([TextRow(id="a", prompt="one and", text=" two")], tokenizer)).groups
    assert list(group.responses[0]) == [*tokenizer.encode(" two"), tokenizer.eos_id]
    assert list(group.prompt)[-1] == tokenizer.encode("one and")[-1]


def test_many_texts_are_each_tokenised_as_they_are_alone(tokenizer: Tokenizer) -> None:
    rows = [TextRow(id=str(n), text=f"{n} and {n * n}") for n in range(600)]
    together = all_of(text_rows(rows, tokenizer)).groups
    assert len(together) == 600
    for n in (0, 255, 256, 599):
        (alone,) = all_of(text_rows(rows[n : n + 1], tokenizer)).groups
        assert str(alone) == str(together[n])


def test_a_group_goes_from_its_first_learnt_token_to_its_last() -> None:
    (group,) = all_of([row("a", 0, 0, 1, 0, 1, 0)]).groups
    assert list(group.prompt) == [10, 11]
    assert list(group.responses[0]) == [12, 13, 14]
    assert group.learnt is not None
    assert group.learnt[0].tolist() == [True, False, True]
    assert isinstance(group.prompt, np.ndarray)
    assert group.prompt.base is None, "it keeps the whole row"


LONG = [row("a", 0, 1, 1), row("b", 0, 0, 1, 1, 1), row("c", 0, 0, 0, 0, 1, 1)]


def test_rows_that_are_too_long_are_an_error_with_the_first_and_their_number() -> None:
    with pytest.raises(UserError, match="row b has 5 tokens, more than max_tokens = 4; so have 2 of 3 rows"):
        fit_lengths(LONG, 4, "error")
    assert len(fit_lengths(LONG, 6, "error").groups) == 3


def test_rows_that_are_too_long_are_left_out_and_counted() -> None:
    found = fit_lengths(LONG, 4, "drop")
    assert (len(found.groups), found.num_truncated, found.num_dropped) == (1, 0, 2)


def test_rows_that_are_too_long_are_cut_and_left_out_where_nothing_is_left_to_learn() -> None:
    found = fit_lengths(LONG, 4, "truncate")
    assert (len(found.groups), found.num_truncated, found.num_dropped) == (2, 1, 1)
    assert list(found.groups[1].responses[0]) == [12, 13]


@pytest.mark.parametrize("too_long", ["drop", "truncate"])
def test_a_dataset_of_which_nothing_is_left_is_an_error(too_long: str) -> None:
    with pytest.raises(UserError, match="row b has 5 tokens, more than max_tokens = 1; so have 2 of 2 rows"):
        fit_lengths(LONG[1:], 1, "drop" if too_long == "drop" else "truncate")
    with pytest.raises(UserError, match="none of 1 rows has a token to learn"):
        fit_lengths([row("a", 0, 0)], 4, "error")


def test_rows_that_the_template_refuses_are_named_and_counted(chat: Chat) -> None:
    end = chat.tokenizer.backend.id_to_token(chat.end_id)
    bad = (TALK[0], Message(role="assistant", content=f"2{end}3"))
    rows = [ChatRow(id=f"row-{n}", messages=TALK if n % 2 else bad) for n in range(10)]
    with pytest.raises(UserError) as raised:
        all_of(conversation_rows(rows, chat, "all_turns"))
    said = str(raised.value)
    assert all(f"row row-{n}: " in said for n in (0, 2, 4))
    assert "row-6" not in said
    assert said.endswith("; so 5 of 10 rows cannot be used")
