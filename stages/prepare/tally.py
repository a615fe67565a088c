"""What was left out of a source's rows, and why."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Reason = Literal["bad", "too_short", "too_long", "same_replies", "duplicate", "prompt_elsewhere"]

REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        "bad": "is not what its format says",
        "too_short": "is too short",
        "too_long": "is too long",
        "same_replies": "the chosen reply is the rejected one",
        "duplicate": "stood there before",
        "prompt_elsewhere": "asks what another split asks",
    }
)
_EXAMPLES = 3


class Tally:
    """Counts by reason, with the places of the first rows."""

    def __init__(self) -> None:
        self.num_read = 0
        self.counts: Counter[Reason] = Counter()
        self.examples: dict[Reason, list[str]] = {}

    def drop(self, reason: Reason, place: str) -> None:
        """Counts a row."""
        self.counts[reason] += 1
        self.examples.setdefault(reason, [])
        if len(self.examples[reason]) < _EXAMPLES:
            self.examples[reason].append(place)

    def drop_many(self, reason: Reason, number: int, places: list[str]) -> None:
        """Counts rows, with the places of some."""
        if number:
            self.counts[reason] += number
            self.examples[reason] = [*self.examples.get(reason, []), *places][:_EXAMPLES]
