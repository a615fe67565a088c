"""A resolved pipeline as YAML that says where each value was written."""

import json
import re
from collections.abc import Iterator

from pydantic import JsonValue

from pipelines.spec.diagnostics import KeyPath, Place, Problems, dotted
from pipelines.spec.load import Loaded
from pipelines.spec.params import read_params
from pipelines.spec.resolved import resolved
from pipelines.spec.scalars import plain_scalar
from pipelines.spec.tree import Items, Scalar, ScalarValue, Table, Tree, to_plain

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")
_UNPRINTABLE = re.compile("[\x7f-\x9f\ufeff\u2028\u2029\ufffe\uffff]")
_FIRST = ("uses", "gate", "action", "for_each", "matrix", "max_parallel", "if", "needs", "inputs", "with", "require")
"""Keys of a stage that come first; the others follow as they are."""
_INDENT = "  "


def render(loaded: Loaded, profile: str | None) -> str:
    """The text; it can be loaded as a pipeline, and its stages have the keys of those that it was made from."""
    origins = Origins(loaded.profile, profile)
    params = read_params(loaded.tree, Problems())
    head = [f"# {name}: {_scalar(value)}  # {origins.of(params.places[name])}" for name, value in params.values.items()]
    body = list(_table(resolved(loaded), (), origins))
    return "\n".join([*(["# params", *head, ""] if head else []), *body]) + "\n"


def render_json(loaded: Loaded, profile: str | None) -> str:
    """The same as JSON: the values, and where each was written by its path."""
    origins, tree = Origins(loaded.profile, profile), resolved(loaded)
    places = {dotted(path): origins.of(place) for path, place in _leaves(tree, ())}
    content: dict[str, JsonValue] = {"pipeline": to_plain(tree), "origins": {**places}}
    return json.dumps(content, indent=2, ensure_ascii=False)


class Origins:
    """What is said about where a value was written."""

    def __init__(self, overlay: Tree | None, profile: str | None) -> None:
        self._inside = {place for _, place in _leaves(overlay, ())} if overlay is not None else set[Place]()
        self._profile = profile

    def of(self, place: Place) -> str:
        """File and line with the profile, a flag, or that it is a default."""
        shown = f"{place.source}:{place.line}" if place.line else place.source
        return f"{shown} (profile {self._profile})" if place in self._inside else shown


def _leaves(tree: Tree, path: KeyPath) -> Iterator[tuple[KeyPath, Place]]:
    if isinstance(tree, Table) and tree.entries:
        for key, entry in tree.entries.items():
            yield from _leaves(entry.value, (*path, key))
    else:
        yield path, tree.written if isinstance(tree, Scalar) else tree.place


def _table(table: Table, path: KeyPath, origins: Origins) -> Iterator[str]:
    indent = _INDENT * len(path)
    is_node = len(path) == 2 and path[0] == "stages"
    for key in sorted(table.entries, key=_rank) if is_node else table.entries:
        value = table.entries[key].value
        if isinstance(value, Table) and value.entries:
            yield f"{indent}{_scalar(key)}:"
            yield from _table(value, (*path, key), origins)
        else:
            place = value.written if isinstance(value, Scalar) else value.place
            yield f"{indent}{_scalar(key)}: {_flow(value)}  # {origins.of(place)}"


def _rank(key: str) -> int:
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def _flow(tree: Tree) -> str:
    match tree:
        case Scalar(value=value):
            return _scalar(value)
        case Items(values=values):
            return f"[{', '.join(_flow(value) for value in values)}]"
        case Table(entries=entries):
            return f"{{{', '.join(f'{_scalar(key)}: {_flow(entry.value)}' for key, entry in entries.items())}}}"


def _scalar(value: ScalarValue) -> str:
    """A value as our loader reads it; text is quoted unless it is plainly a word."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and plain_scalar(value) == value:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
