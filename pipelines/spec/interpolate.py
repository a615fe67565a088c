"""Replaces references by what they stand for, wherever they may stand in a pipeline."""

import json
from collections.abc import Iterable

from pipelines.spec.diagnostics import KeyPath, Place, Problems
from pipelines.spec.references import ReferenceSyntaxError, escaped, parse_template
from pipelines.spec.scope import Area, Kept, Refused, Scope, area_of
from pipelines.spec.tree import Entry, Items, Scalar, ScalarValue, Table, Tree

Pieces = list[str | Scalar | Kept]


def interpolate(tree: Tree, path: KeyPath, place: Place, scope: Scope, problems: Problems) -> Tree:
    """The tree with values in place of references; a whole value keeps its type, within text it becomes text.

    What connects stages, and what is known when a run goes on, stays; text around it keeps its escapes.

    Args:
        tree: a part of the file.
        path: where in the file it is.
        place: where its key stands.
        scope: what references stand for.
        problems: gets one report for each reference that cannot stand where it does.
    """
    return _Interpolation(scope, problems).tree(tree, path, place)


def interpolate_sections(table: Table, names: Iterable[str], scope: Scope, problems: Problems) -> Table:
    """The table with values in place of the references in some of its sections."""
    entries = {
        key: Entry(entry.key_place, interpolate(entry.value, (key,), entry.key_place, scope, problems))
        for key, entry in table.entries.items()
        if key in names
    }
    return Table({**table.entries, **entries}, table.place)


class _Interpolation:
    def __init__(self, scope: Scope, problems: Problems) -> None:
        self._scope = scope
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
            parsed = parse_template(text)
        except ReferenceSyntaxError as error:
            self._problems.add(place, path, str(error))
            return scalar
        pieces: Pieces = []
        for piece in parsed:
            found = piece if isinstance(piece, str) else self._scope.resolve(piece, path)
            if isinstance(found, Refused):
                self._refuse(found, path, place)
                return scalar
            pieces.append(found)
        area = area_of(path)
        if area is Area.CONDITION:
            return self._condition(scalar, pieces, path, place)
        whole = pieces[0] if len(pieces) == 1 and isinstance(pieces[0], Scalar) else None
        read_again = area is not Area.OTHER or self._scope.keep_cells
        if whole and area is not Area.RUN_TEXT and not (read_again and isinstance(whole.value, str)):
            return Scalar(whole.value, scalar.place, whole.place)
        return Scalar(_joined(pieces, read_again), scalar.place, whole.place if whole else None)

    def _refuse(self, refused: Refused, path: KeyPath, place: Place) -> None:
        if refused.message is None:
            self._problems.mute(path)
        else:
            self._problems.add(place, path, refused.message)

    def _condition(self, scalar: Scalar, pieces: Pieces, path: KeyPath, place: Place) -> Scalar:
        """Values become literals: text is quoted, unless the reference stands in quotes."""
        text = ""
        for piece in pieces:
            if not isinstance(piece, Scalar):
                text += _shown_piece(piece)
                continue
            quote = _open_quote(text)
            value = shown(piece.value)
            if quote is None and isinstance(piece.value, str):
                quote = "'" if "'" not in value else '"'
                text += f"{quote}{value}{quote}"
            else:
                text += value
            if quote is not None and quote in value:
                self._problems.add(place, path, f"a text with a quote in it cannot stand in a condition: {value}")
                return scalar
        return Scalar(text, scalar.place)


def _joined(pieces: Pieces, read_again: bool) -> str:
    """The text; one that is read again keeps its escapes."""
    texts = (_shown_piece(piece) if not isinstance(piece, Scalar) else shown(piece.value) for piece in pieces)
    return "".join(
        escaped(text) if read_again and not isinstance(piece, Kept) else text
        for piece, text in zip(pieces, texts, strict=True)
    )


def _shown_piece(piece: str | Kept) -> str:
    return piece if isinstance(piece, str) else f"${{{piece.reference}}}"


def _open_quote(text: str) -> str | None:
    """The quote that text ends within, if it does."""
    quote: str | None = None
    for character in text:
        if quote is None and character in "'\"":
            quote = character
        elif character == quote:
            quote = None
    return quote


def shown(value: ScalarValue) -> str:
    """A value within text."""
    return value if isinstance(value, str) else json.dumps(value)
