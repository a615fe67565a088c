"""Reads YAML text into a tree with places: strict about keys and tags, bounded in size and depth."""

from collections.abc import Callable, Iterator

import yaml

from pipelines.spec.diagnostics import KeyPath, Place, Problems
from pipelines.spec.scalars import plain_scalar
from pipelines.spec.tree import Entry, Items, Scalar, ScalarValue, Table, Tree

MAX_BYTES = 512 * 1024
"""Largest text that is read."""
MAX_DEPTH = 40
"""Deepest nesting of lists and mappings."""
MAX_VALUES = 50_000
"""Most values, those that aliases repeat counted each time."""

Locate = Callable[[int, int], Place]
"""From a line and column, counted from 0, to the place that messages show."""

_TAG = "tag:yaml.org,2002:"
_EMPTY = "the file is empty; a pipeline starts with `version: 1`"


class _UnreadableError(Exception):
    def __init__(self, place: Place, message: str, path: KeyPath = ()) -> None:
        super().__init__(message)
        self.place = place
        self.path = path


def read_yaml(text: str, at: Locate, problems: Problems) -> Tree | None:
    """The value of a YAML text; none when it cannot be read. What is wrong is added to the problems."""
    try:
        return _Builder(_events(text), at, problems).document()
    except _UnreadableError as error:
        problems.add(error.place, error.path, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = at(mark.line, mark.column) if mark else at(0, 0)
        problems.add(place, (), f"not YAML: {_reason(error)}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = at(before.count("\n"), error.position - before.rfind("\n") - 1)
        problems.add(place, (), f"not text: the character U+{ord(text[error.position]):04X} is not allowed in YAML")
    return None


def _events(text: str) -> Iterator[yaml.Event]:
    if yaml.__with_libyaml__:
        try:
            return iter(list(yaml.parse(text, Loader=yaml.CSafeLoader)))
        except yaml.YAMLError:
            pass  # The parser in Python finds the same fault, and words it the same on every machine.
    return yaml.parse(text, Loader=yaml.SafeLoader)


def _reason(error: yaml.MarkedYAMLError) -> str:
    reason = error.problem or "it cannot be read"
    if error.context and error.context_mark:
        return f"{reason} ({error.context} that starts in line {error.context_mark.line + 1})"
    return reason


class _Builder:
    """Builds the tree from the parser's events, without any construction of objects by tag."""

    def __init__(self, events: Iterator[yaml.Event], at: Locate, problems: Problems) -> None:
        self._events = events
        self._at = at
        self._problems = problems
        self._anchors: dict[str, tuple[Tree, int]] = {}
        self._count = 0

    def document(self) -> Tree:
        start = next(event for event in self._events if not isinstance(event, yaml.StreamStartEvent))
        if isinstance(start, yaml.StreamEndEvent):
            raise _UnreadableError(self._at(0, 0), _EMPTY)
        tree = self._value(next(self._events), ())
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise _UnreadableError(self._place(event), "a second document starts here; one is expected")
        return tree

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        assert mark is not None, "events of a parser have marks"
        return self._at(mark.line, mark.column)

    def _value(self, event: yaml.Event, path: KeyPath) -> Tree:
        place = self._place(event)
        if len(path) > MAX_DEPTH:
            raise _UnreadableError(place, f"nested more than {MAX_DEPTH} deep")
        before = self._count
        self._count += 1
        if isinstance(event, yaml.AliasEvent):
            tree = self._alias(event, path)
        elif isinstance(event, yaml.ScalarEvent):
            tree = Scalar(self._scalar(event, path), place)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event, "seq", path)
            tree = self._items(place, path)
        else:
            assert isinstance(event, yaml.MappingStartEvent)
            self._check_tag(event, "map", path)
            tree = self._table(place, path)
        if self._count > MAX_VALUES:
            raise _UnreadableError(place, f"more than {MAX_VALUES} values, those that aliases repeat included")
        if event.anchor and not isinstance(event, yaml.AliasEvent):
            self._anchors[event.anchor] = (tree, self._count - before)
        return tree

    def _alias(self, event: yaml.AliasEvent, path: KeyPath) -> Tree:
        if event.anchor not in self._anchors:
            message = f"the alias `*{event.anchor}` has no anchor `&{event.anchor}` that ends before it"
            raise _UnreadableError(self._place(event), message, path)
        tree, count = self._anchors[event.anchor]
        self._count += count
        return tree

    def _scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> ScalarValue:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            raise _UnreadableError(self._place(event), "half of a surrogate pair is no character", path)
        if event.tag in (None, "!"):
            return plain_scalar(event.value) if event.implicit[0] else event.value
        if event.tag == f"{_TAG}str":
            return event.value
        value = plain_scalar(event.value)
        kinds = {f"{_TAG}null": type(None), f"{_TAG}bool": bool, f"{_TAG}int": int, f"{_TAG}float": (int, float)}
        if event.tag in kinds and isinstance(value, kinds[event.tag]):
            return float(value) if event.tag == f"{_TAG}float" and isinstance(value, int) else value
        shown = event.tag.removeprefix(_TAG)
        if event.tag in kinds:
            self._problems.add(self._place(event), path, f"`{event.value}` is no value of the tag `!!{shown}`")
        else:
            self._problems.add(self._place(event), path, f"the tag `{shown}` is not allowed")
        return event.value

    def _check_tag(self, event: yaml.CollectionStartEvent, kind: str, path: KeyPath) -> None:
        if event.tag not in (None, "!", f"{_TAG}{kind}"):
            self._problems.add(self._place(event), path, f"the tag `{event.tag.removeprefix(_TAG)}` is not allowed")

    def _items(self, place: Place, path: KeyPath) -> Items:
        values: list[Tree] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, (*path, len(values))))
        return Items(tuple(values), place)

    def _table(self, place: Place, path: KeyPath) -> Table:
        entries: dict[str, Entry] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key_place = self._place(event)
            key = self._key(event, path)
            value = self._value(next(self._events), (*path, key))
            if key in entries:
                first = entries[key].key_place
                where = f" (first in line {first.line})" if first.line else ""
                self._problems.add(key_place, (*path, key), f"duplicate key{where}")
            else:
                entries[key] = Entry(key_place, value)
        return Table(entries, place)

    def _key(self, event: yaml.Event, path: KeyPath) -> str:
        tree = self._value(event, path)
        if not isinstance(tree, Scalar):
            raise _UnreadableError(self._place(event), "a list or mapping cannot be a key", path)
        if not isinstance(tree.value, str):
            shown = event.value if isinstance(event, yaml.ScalarEvent) else str(tree.value)
            raise _UnreadableError(self._place(event), f"a key must be text: quote it as '{shown}'", path)
        if tree.value == "<<":
            raise _UnreadableError(self._place(event), "merge keys (`<<`) are not part of YAML 1.2", path)
        return tree.value
