"""Lays a pipeline file over the one that it extends."""

from pathlib import Path

from pipelines.spec.diagnostics import Place, Problems, SpecError
from pipelines.spec.overlay import overlay
from pipelines.spec.read_file import read_file
from pipelines.spec.tree import Scalar, Table
from stages.sources.files import absolute_path

_OWN = ("version", "name", "extends")
"""What is a file's own, and nothing that another one takes from it."""


def read_with_bases(path: Path, problems: Problems) -> Table:
    """The content of a file over that of the file that it `extends`, and so on; every value keeps its place.

    Raises:
        SpecError: a file cannot be read, or extends itself.
    """
    return _read(path, (), problems)


def _read(path: Path, chain: tuple[Path, ...], problems: Problems) -> Table:
    tree = read_file(path, problems)
    entry = tree.entries.get("extends")
    if entry is None:
        return tree
    name = entry.value.value if isinstance(entry.value, Scalar) else None
    if not isinstance(name, str) or not name.strip():
        raise SpecError.at(entry.key_place, "expected the path of a pipeline file", ("extends",))
    base = Path(absolute_path(name, path.parent))
    chain = (*chain, path)
    if base.resolve() in [known.resolve() for known in chain]:
        shown = " → ".join(known.name for known in (*chain, base))
        raise SpecError.at(entry.key_place, f"files extend each other: {shown}", ("extends",))
    if not base.is_file():
        raise SpecError.at(entry.key_place, f"no such file: {base}", ("extends",))
    below = _read(base, chain, problems)
    _check_version(below, base, problems)
    merged = overlay(below.without(*_OWN), tree.without("extends"), problems)
    return Table(merged.entries, tree.place)


def _check_version(base: Table, path: Path, problems: Problems) -> None:
    entry = base.entries.get("version")
    if entry is None:
        problems.add(Place(str(path), 1, 1), ("version",), "required, but missing")
    elif not (isinstance(entry.value, Scalar) and entry.value.value == 1):
        problems.add(entry.key_place, ("version",), "should be 1")
