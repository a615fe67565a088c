"""Rows of tables in text: values between commas or tabs, the names of the columns in the first line."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from stages.engine.data.raw.compressed import kind_of_file, open_bytes
from stages.engine.data.raw.row import RawRow
from stages.errors import UserError

_LONGEST = 1 << 26


def read_table(path: Path) -> Iterator[RawRow]:
    """One row for each line after the first; a line with more values than there are columns is one with a problem.

    Raises:
        UserError: the table is broken.
        OSError: the file cannot be read or unpacked.
    """
    csv.field_size_limit(_LONGEST)
    delimiter = "\t" if kind_of_file(path) == ".tsv" else ","
    with open_bytes(path) as file:
        text = io.TextIOWrapper(cast("BinaryIO", file), encoding="utf-8-sig", newline="")
        reader = csv.DictReader(text, delimiter=delimiter, restkey="", restval=None, strict=True)
        try:
            for fields in reader:
                place = f"{path}:{reader.line_num}"
                if "" in fields:
                    yield RawRow(place, {}, f"more values than the {len(reader.fieldnames or ())} columns")
                else:
                    yield RawRow(place, {name: value for name, value in fields.items() if value})
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"{path}:{reader.line_num}: {error}") from error
