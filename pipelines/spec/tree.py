"""The values of a YAML text, each with the place where it was written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from pipelines.spec.diagnostics import KeyPath, Place

ScalarValue = None | bool | int | float | str


@dataclass(frozen=True)
class Scalar:
    """A single value; `origin` is where it was written when a reference stands in its place."""

    value: ScalarValue
    place: Place
    origin: Place | None = None

    @property
    def written(self) -> Place:
        """Where the value itself was written."""
        return self.origin or self.place


@dataclass(frozen=True)
class Items:
    """A list."""

    values: tuple["Tree", ...]
    place: Place


@dataclass(frozen=True)
class Entry:
    """The value of a key, and where the key stands."""

    key_place: Place
    value: "Tree"


@dataclass(frozen=True)
class Table:
    """A mapping of keys to values, in the order of the text."""

    entries: Mapping[str, Entry]
    place: Place

    def get(self, key: str) -> "Tree | None":
        """The value of a key, or none."""
        entry = self.entries.get(key)
        return entry.value if entry else None

    def without(self, *keys: str) -> "Table":
        """The table with some keys left out."""
        return Table({key: entry for key, entry in self.entries.items() if key not in keys}, self.place)


Tree = Scalar | Items | Table


def to_plain(tree: Tree) -> JsonValue:
    """The bare values."""
    match tree:
        case Scalar(value=value):
            return value
        case Items(values=values):
            return [to_plain(value) for value in values]
        case Table(entries=entries):
            return {key: to_plain(entry.value) for key, entry in entries.items()}


def from_plain(value: JsonValue, place: Place) -> Tree:
    """A tree of bare values that all have one place."""
    match value:
        case list():
            return Items(tuple(from_plain(item, place) for item in value), place)
        case dict():
            return Table({key: Entry(place, from_plain(item, place)) for key, item in value.items()}, place)
        case _:
            return Scalar(value, place)


def to_json(tree: Tree) -> str:
    """The bare values as JSON text; infinities and NaN keep their YAML meaning and are refused by validation."""
    return json.dumps(to_plain(tree))


def locate(tree: Tree, path: KeyPath) -> tuple[Place, KeyPath]:
    """Where a value stands, and its path in the text.

    The place of a table's entry is its key's; of a list's item, its own. A missing value has the place of the table
    that it is missing from. Parts of the path that name a variant of a union, and stand in no text, are left out.
    """
    place = tree.place
    found: list[str | int] = []
    for index, part in enumerate(path):
        if isinstance(tree, Table) and isinstance(part, str) and part in tree.entries:
            place, tree = tree.entries[part].key_place, tree.entries[part].value
        elif isinstance(tree, Items) and isinstance(part, int) and part < len(tree.values):
            tree = tree.values[part]
            place = tree.place
        elif index < len(path) - 1 or part == "[key]":
            continue
        found.append(part)
    return place, tuple(found)


def lookup(tree: Tree, path: KeyPath) -> Tree | None:
    """The value at a path, or none."""
    for part in path:
        if isinstance(tree, Table) and isinstance(part, str) and part in tree.entries:
            tree = tree.entries[part].value
        elif isinstance(tree, Items) and isinstance(part, int) and part < len(tree.values):
            tree = tree.values[part]
        else:
            return None
    return tree


def replace(tree: Tree, path: KeyPath, value: Tree | ScalarValue) -> Tree:
    """The tree with the value at a path replaced, if there is one."""
    if not path:
        origin = tree.origin if isinstance(tree, Scalar) else None
        return value if isinstance(value, Scalar | Items | Table) else Scalar(value, tree.place, origin)
    first, rest = path[0], path[1:]
    if isinstance(tree, Table) and isinstance(first, str) and first in tree.entries:
        entry = tree.entries[first]
        return Table({**tree.entries, first: Entry(entry.key_place, replace(entry.value, rest, value))}, tree.place)
    if isinstance(tree, Items) and isinstance(first, int) and first < len(tree.values):
        changed = replace(tree.values[first], rest, value)
        return Items((*tree.values[:first], changed, *tree.values[first + 1 :]), tree.place)
    return tree
