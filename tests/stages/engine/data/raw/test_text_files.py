"""Rows of JSON lines, JSON arrays and tables of text, packed or not."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.raw import json_array
from stages.engine.data.raw.file import read_file
from stages.engine.data.raw.row import RawRow
from stages.errors import StorageError, UserError

NO_COLUMNS = frozenset[str]()


def read(path: Path) -> list[RawRow]:
    return list(read_file(path, NO_COLUMNS))


def test_json_lines_are_rows_and_bad_lines_say_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\r\n\n[1]\n{"a": NaN}\n{"a"\n"\xff"\n{"a": "\xe2\x80\xa8"}')
    rows = read(path)
    assert [row.place for row in rows] == [f"{path}:{line}" for line in (1, 3, 4, 5, 6, 7)]
    assert [dict(row.fields) for row in rows] == [{"a": 1}, {}, {}, {}, {}, {"a": "\u2028"}]
    problems = [row.problem for row in rows]
    assert problems[1] == "expected a JSON object, not a list"
    assert all(problem.startswith("Invalid JSON") for problem in problems[2:5])
    assert problems[0] == problems[5] == ""


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.ndjson.zst", "rows.json.gz"])
def test_packed_files_hold_the_same_rows(tmp_path: Path, name: str) -> None:
    content = b'{"a": 1}\n{"a": 2}\n'
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(content))
    else:
        with pa.output_stream(str(tmp_path / name), compression="zstd") as packed:
            packed.write(content)
    assert [row.fields for row in read(tmp_path / name)] == [{"a": 1}, {"a": 2}]
    assert read(tmp_path / name)[1].place == f"{tmp_path / name}:2"


def test_a_packed_file_that_is_cut_off_is_an_error_of_storage(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n' * 100)[:-9])
    with pytest.raises(StorageError, match=r"rows\.jsonl\.gz"):
        read(tmp_path / "rows.jsonl.gz")


@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5) | st.none(), max_size=3), max_size=4
    ),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
)
def test_an_array_gives_its_rows_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], indent: int | None, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("array") / "rows.json"
    path.write_text(json.dumps(rows, indent=indent, ensure_ascii=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK", chunk)
        assert [dict(row.fields) for row in read(path)] == rows


def test_a_row_of_an_array_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[\n  {"a": 1},\n\n  {"a":\n 2}, 7\n]')
    assert [row.place.rpartition(":")[2] for row in read(path)] == ["2", "4", "5"]
    assert read(path)[2].problem == "expected a JSON object, not a number"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a": 1}\n{"a": 2}]', r"rows\.json:2: expected `,` or `\]`, not {"),
        ('[{"a": 1},\n{"a" 2}]', r"rows\.json:2: Invalid JSON"),
        ('[{"a": 1}', r"rows\.json:1: expected `,` or `\]`, not the end of the file"),
        ('[\n{"a": NaN}]', r"rows\.json:2: NaN is no JSON"),
        ("7", "expected an array of objects, or an object on each line"),
        ("", "expected an array of objects, or an object on each line"),
    ],
)
def test_a_broken_array_is_an_error_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "rows.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "rows.json")


def test_a_table_has_a_row_for_each_line_and_no_field_for_an_empty_value(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('\ufeffquestion,answer\n"1, 2\n3?",4\n5?,\n6?,7,8\n', encoding="utf-8")
    rows = read(tmp_path / "rows.csv")
    assert [dict(row.fields) for row in rows] == [{"question": "1, 2\n3?", "answer": "4"}, {"question": "5?"}, {}]
    assert rows[1].place.endswith("rows.csv:4")
    assert rows[2].problem == "more values than the 2 columns"
    (tmp_path / "rows.tsv").write_text("a\tb\n1\t2\n")
    assert read(tmp_path / "rows.tsv")[0].fields == {"a": "1", "b": "2"}


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("{}")
    with pytest.raises(UserError, match=r"rows\.txt: no file of rows is named so; known are \.jsonl"):
        read(tmp_path / "rows.txt")
