"""What is wrong with a pipeline file, and where: places, diagnostics and their collector."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from stages.errors import UserError

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of the file to a value."""


@dataclass(frozen=True)
class Place:
    """Where a value was written: a line (from 1) and column (from 1) of a file, or a command-line flag (line 0)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong; as text `file:line:col: path: message`."""

    place: Place
    path: KeyPath
    message: str

    def __str__(self) -> str:
        parts = [str(self.place), dotted(self.path), self.message]
        return ": ".join(part for part in parts if part)


class SpecError(UserError):
    """A pipeline that cannot be used, with everything that was found wrong, in the order of the file."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(diagnostic) for diagnostic in self.diagnostics))

    @classmethod
    def at(cls, place: Place, message: str, path: KeyPath = ()) -> Self:
        """A single fault."""
        return cls([Diagnostic(place, path, message)])


class Problems:
    """Collects diagnostics; a value is reported once, however many checks it fails or places it reaches."""

    def __init__(self, outer: "Problems | None" = None) -> None:
        """Problems of a part of the file know what is reported or muted about the `outer` whole."""
        self._outer = outer
        self._found: list[Diagnostic] = []
        self._paths: set[KeyPath] = set()
        self._places: set[tuple[Place, str]] = set()

    def add(self, place: Place, path: KeyPath, message: str) -> None:
        """Report a value, unless it or a value that it stands in is reported or muted already."""
        if self.silenced(path) or (place, message) in self._places:
            return
        self._places.add((place, message))
        if path:
            self._paths.add(path)
        self._found.append(Diagnostic(place, path, message))

    def mute(self, path: KeyPath) -> None:
        """Report nothing about this value: the fault behind it is reported elsewhere."""
        self._paths.add(path)

    def silenced(self, path: KeyPath) -> bool:
        """Whether this value, or one that it stands in, is reported or muted."""
        own = any(path[:length] in self._paths for length in range(1, len(path) + 1))
        return own or (self._outer is not None and self._outer.silenced(path))

    def extend(self, other: "Problems") -> None:
        """Take over what was found in another reading of the same file, unless it was found in this one too."""
        for found in other.found:
            if (found.place, found.message) not in self._places:
                self._places.add((found.place, found.message))
                self._found.append(found)

    @property
    def found(self) -> list[Diagnostic]:
        """All reports, those of flags first, in the order of the file."""
        return sorted(self._found, key=lambda found: _order(found.place))

    def raise_if_any(self) -> None:
        """Stop here when something was reported.

        Raises:
            SpecError: something was.
        """
        if self._found:
            raise SpecError(self.found)


def _order(place: Place) -> tuple[bool, str, int, int]:
    return (place.line > 0, place.source if place.line else "", place.line, place.column)


def dotted(path: Sequence[str | int]) -> str:
    """The path as a message shows it: `stages.sft.retry.on.1`."""
    return ".".join(str(part) for part in path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)`, or nothing when no known word is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean `{near[0]}`?)" if near else ""
