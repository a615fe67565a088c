"""Records of rows as data sets are published."""

from collections.abc import Mapping

import pytest

from stages.engine.data.formats.fields import BadRowError, Columns
from stages.engine.data.formats.formats import FORMATS, convert, find_format
from stages.engine.data.formats.names import Column
from stages.engine.data.records import (
    ChatRow,
    LabelledRow,
    Message,
    PreferenceRow,
    Record,
    Row,
    TextRow,
    Tool,
    ToolCall,
)


def user(content: str) -> Message:
    return Message(role="user", content=content)


def reply(content: str) -> Message:
    return Message(role="assistant", content=content)


def system(content: str) -> Message:
    return Message(role="system", content=content)


def read(row: Mapping[str, object], columns: Mapping[Column, str] | None = None) -> Record:
    named = Columns(columns or {})
    name = find_format(frozenset(row), named)
    assert name is not None
    return convert(FORMATS[name], row, named)


def openai(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


CALL = {"id": "7", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ADD = Tool(name="add", description="Adds.", parameters={"type": "object"})
ADD_JSON = '{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}'


@pytest.mark.parametrize(
    ("row", "record"),
    [
        ({"question": "1?", "answer": "2", "id": 9}, Row(id="?", messages=(user("1?"),), response="2", answer="2")),
        ({"text": "Once", "label": 3}, TextRow(id="?", text="Once")),
        (
            {"messages": openai(("developer", "S"), ("user", "a"), ("assistant", "b")), "prompt": "a"},
            ChatRow(id="?", messages=(system("S"), user("a"), reply("b"))),
        ),
        (
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "S"},
            ChatRow(id="?", messages=(system("S"), user("a"), reply("b"))),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}, *openai(("bot", "c"))]},
            ChatRow(id="?", messages=(user("ab"), reply("c"))),
        ),
        (
            {
                "messages": [
                    *openai(("user", "a")),
                    {"role": "assistant", "content": "b", "weight": 0},
                    *openai(("user", "c"), ("assistant", "d")),
                ]
            },
            ChatRow(id="?", messages=(user("a"), reply("b"), user("c"), reply("d")), num_given=2),
        ),
        (
            {"prompt": "a", "completion": "b"},
            ChatRow(id="?", messages=(user("a"), reply("b")), num_given=1),
        ),
        (
            {
                "prompt": openai(("user", "a"), ("assistant", "b"), ("user", "c")),
                "completion": openai(("assistant", "d")),
            },
            ChatRow(id="?", messages=(user("a"), reply("b"), user("c"), reply("d")), num_given=3),
        ),
        (
            {"instruction": "a", "input": "b", "output": "c", "system": "S", "history": [["x", "y"]]},
            ChatRow(id="?", messages=(system("S"), user("x"), reply("y"), user("a\n\nb"), reply("c")), num_given=4),
        ),
        (
            {"instruction": "a", "input": "", "output": "c"},
            ChatRow(id="?", messages=(user("a"), reply("c")), num_given=1),
        ),
    ],
)
def test_published_rows_become_records(row: Mapping[str, object], record: Record) -> None:
    assert read(row) == record


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "chosen": "b", "rejected": "c", "margin": 0.5},
        {"question": "a", "chosen": "b", "rejected": "c", "score_chosen": 8.5, "score_rejected": "8"},
        {"conversations": [{"from": "human", "value": "a"}], "chosen": {"from": "gpt", "value": "b"},
         "rejected": {"from": "gpt", "value": "c"}, "margin": 0.5},
        {"prompt": "a", "chosen": openai(("assistant", "b")), "rejected": openai(("assistant", "c")), "margin": "0.5"},
        {"prompt": "other words", "chosen": openai(("user", "a"), ("assistant", "b")),
         "rejected": openai(("user", "a"), ("assistant", "c")), "messages": [], "margin": 0.5},
        {"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant: c", "margin": 0.5},
    ],
)  # fmt: skip
def test_a_preference_has_its_prompt_beside_the_replies_or_at_their_beginning(row: Mapping[str, object]) -> None:
    expected = PreferenceRow(id="?", messages=(user("a"),), chosen=(reply("b"),), rejected=(reply("c"),), margin=0.5)
    assert read(row) == expected


def test_whole_conversations_part_before_the_first_reply_that_differs_in_what_follows() -> None:
    shared = openai(("user", "a"), ("assistant", "b"))
    row = {
        "chosen": [*shared, *openai(("user", "c"), ("assistant", "d"))],
        "rejected": [*shared, *openai(("user", "e"), ("assistant", "f"))],
    }
    record = read(row)
    assert isinstance(record, PreferenceRow)
    assert record.messages == (user("a"),)
    assert record.chosen == (reply("b"), user("c"), reply("d"))
    assert record.rejected == (reply("b"), user("e"), reply("f"))


@pytest.mark.parametrize(("label", "expected"), [(True, True), (0, False), ("false", False), ("1", True)])
@pytest.mark.parametrize("row", [{"prompt": "a", "completion": "b"}, {"messages": openai(("user", "a"), ("gpt", "b"))}])
def test_a_labelled_reply_is_good_or_bad(row: Mapping[str, object], label: object, *, expected: bool) -> None:
    record = read({**row, "label": label})
    assert record == LabelledRow(id="?", messages=(user("a"),), response=(reply("b"),), label=expected)


@pytest.mark.parametrize(
    "turns",
    [
        [
            {"from": "human", "value": "1 + 2"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
            {"from": "observation", "value": "3"},
            {"from": "gpt", "value": "It is 3."},
        ],
        [
            {"role": "user", "content": "1 + 2"},
            {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": None}]},
            {"role": "tool", "content": "3", "tool_call_id": None},
            {"role": "assistant", "content": "It is 3.", "tool_calls": None},
        ],
    ],
)
@pytest.mark.parametrize("tools", [f"[{ADD_JSON}]", [f'{{"type": "function", "function": {ADD_JSON}}}']])
def test_dialogues_with_tools_are_the_same_in_either_notation(turns: list[object], tools: object) -> None:
    record = read({"conversations": turns, "tools": tools})
    call = Message(role="assistant", content="", tool_calls=(ToolCall(name="add", arguments={"a": 1}),))
    messages = (user("1 + 2"), call, Message(role="tool", content="3"), reply("It is 3."))
    assert record == ChatRow(id="?", messages=messages, tools=(ADD,))


def test_calls_keep_the_ids_that_results_refer_to() -> None:
    turns = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "3", "tool_call_id": "7"}]
    record = read({"messages": [*openai(("user", "a")), *turns]})
    assert isinstance(record, ChatRow)
    assert record.messages[1].tool_calls[0].id == record.messages[2].tool_call_id == "7"


def test_columns_of_other_names_are_found_when_they_are_named() -> None:
    row = {"frage": "a", "antwort": "b", "prompt": "not this"}
    record = read(row, {"prompt": "frage", "completion": "antwort"})
    assert record == ChatRow(id="?", messages=(user("a"), reply("b")), num_given=1)
    assert find_format(frozenset({"frage", "antwort"}), Columns({})) is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a", "answer": 7}, "`answer`: expected text, not 7"),
        ({"question": "a", "answer": None}, "`answer` is missing"),
        ({"messages": openai(("user", "a"))}, "no turn of the assistant to learn from"),
        ({"messages": openai(("user", "a"), ("robot", "b"))}, r'message 1: its role is "robot"; known are system'),
        ({"messages": "[{"}, "no JSON"),
        ({"messages": [{"role": "user"}]}, "message 0: it has no `content`"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "message 0: content: only parts of text"),
        ({"messages": [{"role": "assistant", "content": "a", "reasoning_content": "b"}]}, "`reasoning_content`, which"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "[]"}]}]}, "expected an object"),
        (
            {"messages": [{"role": "user", "content": "a", "tool_calls": [CALL]}]},
            "message 0: .*only an assistant calls",
        ),
        ({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]}, "a weight is 0 or 1, not 0.5"),
        (
            {"messages": [{"role": "bot", "content": "a"}, {"role": "bot", "content": "b", "weight": 0}]},
            "turns of weight 0 come after turns of weight 1",
        ),
        (
            {"messages": openai(("user", "a"), ("bot", "b")), "tools": '[{"parameters": {}}]'},
            "tools: expected an object",
        ),
        ({"prompt": 7, "completion": "b"}, "expected text or messages, not 7"),
        ({"prompt": "a", "completion": "b", "history": ["x"]}, "history: expected pairs"),
        ({"chosen": "b", "rejected": "c"}, "`messages` or `conversations` or `conversation` is missing"),
        (
            {"chosen": openai(("user", "a"), ("bot", "b")), "rejected": openai(("user", "z"), ("bot", "b"))},
            "do not begin with the same prompt",
        ),
        (
            {"prompt": "a", "chosen": openai(("assistant", "b"), ("user", "c")), "rejected": "d"},
            "ends with a turn of the",
        ),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "big"}, '`margin`: expected a number, not "big"'),
        ({"prompt": "a", "completion": "b", "label": "maybe"}, 'the label is "maybe"; expected true or false'),
        ({"text": ""}, "text: String should have at least 1 character"),
    ],
)
def test_what_is_wrong_with_a_row_is_told(row: Mapping[str, object], message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        read(row)
