"""Reads one pipeline file into a tree with places."""

from pathlib import Path

from pipelines.spec.diagnostics import Place, Problems, SpecError
from pipelines.spec.tree import Table
from pipelines.spec.yaml_text import MAX_BYTES, read_yaml


def read_file(path: Path, problems: Problems) -> Table:
    """The content of a pipeline file.

    Raises:
        SpecError: it cannot be read, or is not one mapping of keys to values.
    """
    tree = read_yaml(_text(path), lambda line, column: Place(str(path), line + 1, column + 1), problems)
    if tree is not None and not isinstance(tree, Table):
        problems.add(Place(str(path), 1, 1), (), "not a pipeline: expected a mapping that starts with `version: 1`")
    if not isinstance(tree, Table):
        raise SpecError(problems.found)
    return tree


def _text(path: Path) -> str:
    start = Place(str(path), 1, 1)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError.at(start, f"larger than {MAX_BYTES // 1024} KiB, which no pipeline is")
        data = path.read_bytes()
    except OSError as error:
        raise SpecError.at(start, f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", errors="replace")) + 1
        place = Place(str(path), before.count(b"\n") + 1, column)
        raise SpecError.at(place, f"not text: the byte 0x{data[error.start]:02x} is not UTF-8") from error
