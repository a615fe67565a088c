"""Dataset folders are written and read exactly, and a bad line is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.contract import DatasetArtifact
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
    open_dataset,
    read_dataset,
    write_dataset,
)
from stages.errors import UserError

texts = st.text(st.characters(codec="utf-8"))


def make_row(row_id: str, content: str = "1 + 1 =") -> Row:
    return Row(id=row_id, messages=(Message(role="user", content=content),), response="2", answer="2")


@given(st.lists(texts, min_size=1, max_size=4))
def test_rows_survive_with_any_text(tmp_path_factory: pytest.TempPathFactory, contents: list[str]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = [make_row(f"train-{n}", content) for n, content in enumerate(contents)]
    assert write_dataset(folder, rows) == DatasetArtifact(num_rows=len(rows))
    assert read_dataset(folder) == rows


def test_a_dataset_without_rows_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, [])
    with pytest.raises(UserError, match=r"data\.jsonl: the dataset has no rows"):
        read_dataset(tmp_path)


def test_the_file_is_one_object_a_line_in_a_fixed_order_of_keys(tmp_path: Path) -> None:
    write_dataset(tmp_path, [make_row("train-0", "é")])
    expected = '{"id":"train-0","messages":[{"role":"user","content":"é"}],"response":"2","answer":"2"}\n'
    assert (tmp_path / "data.jsonl").read_text(encoding="utf-8") == expected


def test_tools_calls_and_results_survive(tmp_path: Path) -> None:
    call = ToolCall(name="add", arguments={"terms": [1, 2.5, None], "note": "é"}, id="7")
    row = Row(
        id="a",
        messages=(
            Message(role="user", content="1 + 2.5", name="ann"),
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content="3.5", tool_call_id="7", name="add"),
        ),
        response="3.5",
        answer="3.5",
        tools=(Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {}}),),
    )
    write_dataset(tmp_path, [row])
    assert read_dataset(tmp_path) == [row]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "b"', r"data.jsonl:2: Invalid JSON"),
        ("", r"data.jsonl:2: Invalid JSON"),
        (
            '{"id":"b","messages":[{"role":"robot","content":""}],"response":"","answer":""}',
            r":2: messages.0.role: Input",
        ),
        (
            '{"id":"b","messages":[{"role":"user","content":"","tool_calls":[{"name":"f","arguments":{}}]}]}',
            r":2: messages.0: .*role 'user' has tool_calls; only an assistant calls tools",
        ),
        (
            '{"id":"b","messages":[{"role":"user","content":"","tool_call_id":"7"}],"response":"","answer":""}',
            r":2: messages.0: .*role 'user' has a tool_call_id",
        ),
        (
            '{"id":"b","messages":[{"role":"assistant","content":"","tool_calls":[{"name":"f","arguments":[1]}]}]}',
            r":2: messages.0.tool_calls.0.arguments: Input should be an object",
        ),
        (
            '{"id":"b","messages":[{"role":"assistant","content":"","tool_calls":[{"name":"f","arguments":{"x":[NaN]}}]}]}',
            r":2: messages.0.tool_calls.0.arguments: .*NaN and infinity are no JSON",
        ),
        ('{"id":"b","messages":[],"response":"","answer":""}', r":2: messages: Tuple should have at least 1 item"),
        (
            '{"id":"b","messages":[{"role":"user","content":""}],"response":"","answer":2}',
            r":2: answer: .*valid string",
        ),
        (
            '{"id":"a","messages":[{"role":"user","content":""}],"response":"","answer":""}',
            r":2: id 'a' is that of line 1",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path: Path, line: str, message: str) -> None:
    write_dataset(tmp_path, [make_row("a")])
    with (tmp_path / "data.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=message):
        read_dataset(tmp_path)


def test_missing_rows_and_a_missing_descriptor_are_errors(tmp_path: Path) -> None:
    write_dataset(tmp_path, [make_row("a"), make_row("b")])
    (tmp_path / "artifact.json").write_text(DatasetArtifact(num_rows=3).model_dump_json())
    with pytest.raises(UserError, match=r"data.jsonl: 2 rows, expected 3"):
        read_dataset(tmp_path)
    (tmp_path / "artifact.json").unlink()
    with pytest.raises(UserError, match=r"artifact.json: not a dataset"):
        read_dataset(tmp_path)


ASK, REPLY = Message(role="user", content="1 + 1"), Message(role="assistant", content="2")
OF_EACH_KIND = {
    "conversation": ChatRow(id="a", messages=(ASK, REPLY, ASK, REPLY), num_given=2),
    "text": TextRow(id="a", text="Once\nupon a time.", prompt="A tale: "),
    "preference": PreferenceRow(id="a", messages=(ASK,), chosen=(REPLY,), rejected=(REPLY, ASK, REPLY), margin=0.5),
    "labelled": LabelledRow(id="a", messages=(ASK,), response=(REPLY,), label=False),
}


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_rows_of_every_kind_are_read_as_they_were_written(tmp_path: Path, kind: str) -> None:
    row = OF_EACH_KIND[kind]
    assert write_dataset(tmp_path, [row], type(row)).rows == kind
    rows = open_dataset(tmp_path, Row, type(row))
    assert rows.record is type(row)
    assert list(rows) == [row]


def test_rows_of_another_kind_than_the_stage_takes_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, [OF_EACH_KIND["text"]], TextRow)
    with pytest.raises(UserError, match="has rows of kind 'text', but this stage takes 'problem' or 'preference'; the"):
        open_dataset(tmp_path, PreferenceRow, Row)
    with pytest.raises(UserError, match="takes 'problem'; the setting `format`"):
        read_dataset(tmp_path)


def test_a_dataset_of_an_earlier_version_has_problems(tmp_path: Path) -> None:
    write_dataset(tmp_path, [make_row("a")])
    (tmp_path / "artifact.json").write_text('{"kind":"dataset","file":"data.jsonl","num_rows":1}')
    assert [row.id for row in open_dataset(tmp_path, Row)] == ["a"]


def test_rows_are_read_by_their_number_and_in_slices(tmp_path: Path) -> None:
    rows = [make_row(f"r{n}", "x" * n) for n in range(5)]
    write_dataset(tmp_path, rows)
    opened = open_dataset(tmp_path, Row)
    assert opened[3] == rows[3]
    assert opened[-1] == rows[4]
    assert opened[1:5:2] == rows[1:5:2]
    with pytest.raises(IndexError):
        opened[5]


@pytest.mark.parametrize(
    ("record", "fields", "message"),
    [
        (ChatRow, {"messages": (ASK,)}, "no turn of the assistant to learn from"),
        (ChatRow, {"messages": (ASK, REPLY, ASK), "num_given": 2}, "no turn of the assistant to learn from"),
        (PreferenceRow, {"messages": (ASK,), "chosen": (REPLY,), "rejected": ()}, "rejected"),
        (PreferenceRow, {"messages": (ASK,), "chosen": (REPLY, ASK), "rejected": (REPLY,)}, "not of role 'user'"),
        (LabelledRow, {"messages": (), "response": (REPLY,), "label": True}, "messages"),
        (TextRow, {"text": ""}, "text"),
    ],
)
def test_a_row_that_teaches_nothing_is_refused(record: type[Record], fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record.model_validate({"id": "a", **fields})
