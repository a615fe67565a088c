"""Rows of Parquet and Arrow files."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from stages.engine.data.raw.file import read_file
from stages.errors import UserError

TABLE = pa.table(
    {
        "messages": [[{"role": "user", "content": "a", "name": None}], [{"role": "user", "content": "b", "name": "x"}]],
        "score": [1, None],
        "embedding": [b"\0", b"\1"],
    }
)
WANTED = frozenset({"messages", "score", "text"})
EXPECTED = [
    {"messages": [{"role": "user", "content": "a"}], "score": 1},
    {"messages": [{"role": "user", "content": "b", "name": "x"}], "score": None},
]


def write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
        return
    with pa.OSFile(str(path), "wb") as file:
        kind = pa.ipc.new_file if path.stem == "indexed" else pa.ipc.new_stream
        with kind(file, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("name", ["rows.parquet", "indexed.arrow", "stream.arrow"])
def test_rows_have_the_wanted_columns_and_no_field_that_is_null_within_another(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, TABLE)
    rows = list(read_file(tmp_path / name, WANTED))
    assert [row.fields for row in rows] == EXPECTED
    assert [row.place for row in rows] == [f"{tmp_path / name}: row 1", f"{tmp_path / name}: row 2"]


@pytest.mark.parametrize("name", ["rows.parquet", "indexed.arrow", "stream.arrow"])
def test_many_rows_stay_in_order(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, pa.table({"text": [str(number) for number in range(1500)]}))
    assert [row.fields["text"] for row in read_file(tmp_path / name, WANTED)] == [str(n) for n in range(1500)]


@pytest.mark.parametrize("name", ["rows.parquet", "stream.arrow"])
def test_what_is_no_table_or_has_no_known_column_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no table at all, but long enough")
    with pytest.raises(UserError, match=f"{name}: cannot be read"):
        list(read_file(tmp_path / name, WANTED))
    write(tmp_path / name, pa.table({"x": [1], "y": [2]}))
    with pytest.raises(UserError, match="its columns are x, y: none has a known name; say by `columns`"):
        list(read_file(tmp_path / name, WANTED))


def test_without_the_library_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pyarrow reads such files, and is not installed: pip install 'pyarrow>=20'"):
        list(read_file(tmp_path / "rows.parquet", WANTED))
