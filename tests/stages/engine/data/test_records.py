"""Dataset folders are written and read exactly, and a bad line is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.contract import DatasetArtifact
from stages.engine.data.records import Message, Row, Tool, ToolCall, read_dataset, write_dataset
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
