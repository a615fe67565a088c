"""Rows of Parquet and Arrow files, a few hundred at a time."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

from stages.engine.data.raw.row import RawRow
from stages.errors import UserError

_ROWS = 512
_FILE_MARK = b"ARROW1"
"""Begins an Arrow file that has an index; a stream of batches, as `save_to_disk` writes it, begins otherwise."""


def import_pyarrow(path: Path) -> ModuleType:
    """The library that reads such files.

    Raises:
        UserError: it is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(f"{path}: pyarrow reads such files, and is not installed: pip install 'pyarrow>=20'") from error
    return pa


def read_parquet(path: Path, columns: frozenset[str]) -> Iterator[RawRow]:
    """The rows of a Parquet file, of their columns only those that somebody asks for.

    Raises:
        UserError: the file is none, or has none of the columns.
    """
    arrow = import_pyarrow(path)
    from pyarrow import parquet

    with _told(path, arrow.ArrowException):
        file = parquet.ParquetFile(path)
        chosen = _choose(path, file.schema_arrow.names, columns)
        yield from _rows(path, file.iter_batches(batch_size=_ROWS, columns=chosen))


def read_arrow(path: Path, columns: frozenset[str]) -> Iterator[RawRow]:
    """The rows of an Arrow file or stream; errors as `read_parquet`."""
    arrow = import_pyarrow(path)
    from pyarrow import ipc

    with _told(path, arrow.ArrowException), arrow.memory_map(str(path)) as mapped:
        has_index = mapped.read(len(_FILE_MARK)) == _FILE_MARK
        mapped.seek(0)
        reader = ipc.open_file(mapped) if has_index else ipc.open_stream(mapped)
        chosen = _choose(path, reader.schema.names, columns)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if has_index else reader
        yield from _rows(path, (part for batch in batches for part in _parts(batch.select(chosen))))


@runtime_checkable
class _Batch(Protocol):
    """What is used of a record batch."""

    num_rows: int

    def slice(self, offset: int, length: int, /) -> "_Batch": ...
    def to_pylist(self) -> list[dict[str, object]]: ...


def _parts(batch: _Batch) -> Iterator[_Batch]:
    """A batch may hold a million rows, which become Python objects."""
    return (batch.slice(start, _ROWS) for start in range(0, batch.num_rows, _ROWS))


def _rows(path: Path, batches: Iterable[_Batch]) -> Iterator[RawRow]:
    number = 0
    for batch in batches:
        for fields in batch.to_pylist():
            number += 1
            yield RawRow(f"{path}: row {number}", {name: _without_nulls(value) for name, value in fields.items()})


def _without_nulls(value: object) -> object:
    """Tables write null for a field that a row does not have at all."""
    match value:
        case dict():
            return {name: _without_nulls(part) for name, part in value.items() if part is not None}
        case list():
            return [_without_nulls(part) for part in value]
        case _:
            return value


def _choose(path: Path, present: Sequence[str], columns: frozenset[str]) -> list[str]:
    chosen = [name for name in present if name in columns]
    if not chosen:
        raise UserError(
            f"{path}: its columns are {', '.join(present)}: none has a known name; say by `columns` which are"
        )
    return chosen


@contextmanager
def _told(path: Path, broken: type[Exception]) -> Generator[None]:
    try:
        yield
    except broken as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
