"""Who is told what a stage does, from the wait for its lease to its last beat."""

from collections.abc import Callable
from typing import Protocol

from stages.contract import Beat


class StageObserver(Protocol):
    """Told what becomes of one stage; what comes after its end is told by the result of `execute_stage`.

    `beat` and `log` are called from threads of their own while the stage's process runs.
    """

    def waiting(self, text: str) -> None:
        """It waits, for another run that works on it or for the devices; `text` says for what."""
        ...

    def running(self, text: str) -> None:
        """It has what it waited for, and its process starts; `text` says what it goes on from, or is empty."""
        ...

    def preempted(self, text: str) -> None:
        """Its process was taken away after it had saved; another attempt follows at once."""
        ...

    def note(self, text: str) -> None:
        """Something that the user should know, for example what was changed for this attempt."""
        ...

    def beat(self, beat: Beat) -> None:
        """It got further."""
        ...

    def log(self, line: str) -> None:
        """A line that its process printed."""
        ...


class Observers:
    """Several observers as one."""

    def __init__(self, *observers: StageObserver) -> None:
        self._observers = observers

    def waiting(self, text: str) -> None:
        for observer in self._observers:
            observer.waiting(text)

    def running(self, text: str) -> None:
        for observer in self._observers:
            observer.running(text)

    def preempted(self, text: str) -> None:
        for observer in self._observers:
            observer.preempted(text)

    def note(self, text: str) -> None:
        for observer in self._observers:
            observer.note(text)

    def beat(self, beat: Beat) -> None:
        for observer in self._observers:
            observer.beat(beat)

    def log(self, line: str) -> None:
        for observer in self._observers:
            observer.log(line)


class LineObserver:
    """Everything but beats as lines of a log."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit

    def waiting(self, text: str) -> None:
        self._emit(text)

    def running(self, text: str) -> None:
        if text:
            self._emit(text)

    def preempted(self, text: str) -> None:
        self._emit(text)

    def note(self, text: str) -> None:
        self._emit(text)

    def beat(self, beat: Beat) -> None:
        """A log has no place for them."""

    def log(self, line: str) -> None:
        self._emit(line)
