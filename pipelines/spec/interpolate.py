"""Replaces `${params.NAME}` everywhere in a pipeline."""

import json

from pipelines.spec.diagnostics import KeyPath, Place, Problems, did_you_mean
from pipelines.spec.nodes import ParamValue
from pipelines.spec.params import Params
from pipelines.spec.references import OutputReference, ParamReference, Reference, ReferenceSyntaxError, parse_template
from pipelines.spec.tree import Entry, Items, Scalar, Table, Tree

INTERPOLATED = ("description", "store", "defaults", "stages")
"""Sections that may refer to parameters."""


def interpolate(table: Table, params: Params, problems: Problems) -> Table:
    """The table with the values of the parameters in it; a whole value keeps its type, within text it becomes text.

    `${stages…}` is left where it may stand: in the inputs of a stage and in the conditions of a gate.
    """
    interpolation = _Interpolation(params, problems)
    entries = {
        key: Entry(entry.key_place, interpolation.tree(entry.value, (key,), entry.key_place))
        for key, entry in table.entries.items()
        if key in INTERPOLATED
    }
    return Table({**table.entries, **entries}, table.place)


class _Interpolation:
    def __init__(self, params: Params, problems: Problems) -> None:
        self._params = params
        self._problems = problems

    def tree(self, tree: Tree, path: KeyPath, place: Place) -> Tree:
        match tree:
            case Scalar(value=str() as text):
                return self._text(tree, text, path, place) if "${" in text else tree
            case Scalar():
                return tree
            case Items(values=values):
                inside = [self.tree(value, (*path, index), value.place) for index, value in enumerate(values)]
                return Items(tuple(inside), tree.place)
            case Table(entries=entries):
                replaced = {
                    key: Entry(entry.key_place, self.tree(entry.value, (*path, key), entry.key_place))
                    for key, entry in entries.items()
                }
                return Table(replaced, tree.place)

    def _text(self, scalar: Scalar, text: str, path: KeyPath, place: Place) -> Scalar:
        try:
            pieces = parse_template(text)
        except ReferenceSyntaxError as error:
            self._problems.add(place, path, str(error))
            return scalar
        values = [piece if isinstance(piece, str) else self._value(piece, path, place) for piece in pieces]
        if None in values:
            return scalar
        if len(values) == 1 and values[0] is not None:
            return Scalar(values[0], scalar.place)
        return Scalar("".join(_shown(value) for value in values if value is not None), scalar.place)

    def _value(self, reference: Reference, path: KeyPath, place: Place) -> ParamValue | None:
        """What stands in place of a reference; none when it stands for nothing, which is reported."""
        match reference:
            case OutputReference():
                if _takes_outputs(path):
                    return f"${{{reference}}}"
                self._problems.add(place, path, f"`${{{reference}}}` can only be an input of a stage or gate")
                return None
            case ParamReference(name=name) if name in self._params.values:
                return self._params.values[name]
            case ParamReference(name=name) if name in self._params.broken:
                self._problems.mute(path)
                return None
            case ParamReference(name=name):
                hint = did_you_mean(name, self._params.values)
                self._problems.add(place, path, f"unknown parameter `{name}`{hint}")
                return None
            case _:
                self._problems.add(place, path, f"`${{{reference}}}` cannot stand here")
                return None


def _takes_outputs(path: KeyPath) -> bool:
    return len(path) == 4 and path[0] == "stages" and path[2] in ("inputs", "require")


def _shown(value: ParamValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
