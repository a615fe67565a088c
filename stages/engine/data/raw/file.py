"""Rows of a file of any kind, told by the end of its name."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stages.engine.data.raw.arrow import read_arrow, read_parquet
from stages.engine.data.raw.compressed import COMPRESSIONS, kind_of_file
from stages.engine.data.raw.json_array import read_json
from stages.engine.data.raw.json_lines import read_json_lines
from stages.engine.data.raw.row import RawRow
from stages.engine.data.raw.table_text import read_table
from stages.errors import StorageError, UserError
from stages.store.io_errors import io_errors

TEXTS: Mapping[str, Callable[[Path], Iterator[RawRow]]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json,
    ".csv": read_table,
    ".tsv": read_table,
}
"""May be compressed."""
TABLES: Mapping[str, Callable[[Path, frozenset[str]], Iterator[RawRow]]] = {
    ".parquet": read_parquet,
    ".arrow": read_arrow,
}
KNOWN = f"{', '.join((*TEXTS, *TABLES))}, texts also with {' or '.join(COMPRESSIONS)} after that"


def holds_rows(path: Path) -> bool:
    """Whether the name is that of a file of rows."""
    kind = kind_of_file(path)
    return kind in TEXTS or (kind in TABLES and path.suffix.lower() == kind)


def read_file(path: Path, columns: frozenset[str]) -> Iterator[RawRow]:
    """The rows of a file; of a table with types only these columns are read.

    Raises:
        UserError: its name says no known kind, or it is not of the kind that its name says.
        StorageError: it cannot be read.
    """
    if not holds_rows(path):
        raise UserError(f"{path}: no file of rows is named so; known are {KNOWN}")
    kind = kind_of_file(path)
    try:
        with io_errors("read", path):
            yield from TEXTS[kind](path) if kind in TEXTS else TABLES[kind](path, columns)
    except (EOFError, zlib.error) as error:
        raise StorageError(f"{path}: what was packed is cut off or damaged: {error}") from error
