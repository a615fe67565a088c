"""The rows of all sources: collected one after the other, without those that stood before."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil

import numpy as np
from jaxtyping import Int64, UInt32, UInt64

from stages.contract import StageContext
from stages.engine.data.records import RECORDS
from stages.errors import UserError
from stages.prepare.collect import Collector, SourceRows
from stages.prepare.config import PrepareConfig
from stages.prepare.pulse import Pulse
from stages.prepare.reading import is_endless
from stages.prepare.sizes import apportion, most_rows, rows_needed, split_sizes
from stages.prepare.splits import first_of_each
from stages.prepare.spool import Spool

_EXAMPLES = 3


@dataclass(frozen=True)
class Pool:
    """Rows of a source that may be chosen.

    Attributes:
        source: the source.
        kept: numbers of the rows in its spool.
    """

    source: SourceRows
    kept: Int64[np.ndarray, " rows"]

    @property
    def prompts(self) -> UInt64[np.ndarray, " rows"]:
        """Fingerprints of what they ask."""
        return self.source.spool.prompts[self.kept]

    @property
    def lengths(self) -> UInt32[np.ndarray, " rows"]:
        """Characters of each."""
        return self.source.spool.lengths[self.kept]

    @property
    def weight(self) -> float:
        """Of the source, among all."""
        return self.source.entry.weight

    def row(self, number: int, row_id: str) -> bytes:
        """A row as JSON."""
        return self.source.spool.row(int(self.kept[number]), row_id)

    def places(self, rows: Int64[np.ndarray, " _"]) -> list[str]:
        """Where the first of some rows stood."""
        return [self.source.spool.place(int(self.kept[row])) for row in rows[:_EXAMPLES]]


def collect_all(context: StageContext, config: PrepareConfig, pulse: Pulse, stack: ExitStack) -> list[SourceRows]:
    """The good rows of every source, in the order of the settings; `stack` deletes them in the end.

    Of problems as many are drawn as the splits need, which where training gets the rest is what the other sources have.

    Raises:
        UserError: a source is not what it should be, or they have rows of different kinds.
    """
    needed = _needed_of_each(config)
    collected: dict[int, SourceRows] = {}
    # What is generated has no end: how much of it is needed may depend on how much the others have.
    for number in sorted(range(len(config.sources)), key=lambda number: is_endless(config.sources[number])):
        entry = config.sources[number]
        wanted = needed[number] if needed is not None else None
        if wanted is None and is_endless(entry):
            wanted = _needed_beside(number, config, collected)
        spool = Spool(context.scratch / f"rows-{number}")
        stack.callback(spool.close)
        collected[number] = Collector(context, config, entry, pulse).collect(spool, wanted)
    found = [collected[number] for number in range(len(collected))]
    _check_kinds(found)
    return found


def make_pools(config: PrepareConfig, collected: Sequence[SourceRows]) -> list[Pool]:
    """What is left of each source when rows that are the same as an earlier one are left out, and counted."""
    if config.deduplicate == "off":
        return [Pool(one, np.arange(len(one.spool))) for one in collected]
    pools: list[Pool] = []
    for one, is_first in zip(collected, first_of_each([one.spool.contents for one in collected]), strict=True):
        again = np.flatnonzero(~is_first)
        places = [one.spool.place(int(row)) for row in again[:_EXAMPLES]]
        one.tally.drop_many("duplicate", len(again), places)
        pools.append(Pool(one, np.flatnonzero(is_first)))
    return pools


def _needed_of_each(config: PrepareConfig) -> list[int] | None:
    total = rows_needed(config)
    if total is None:
        return None
    weights = [entry.weight for entry in config.sources]
    parts = [apportion(size or 0, weights) for size in split_sizes(config, total).values()]
    return [sum(counts) for counts in zip(*parts, strict=True)]


def _needed_beside(number: int, config: PrepareConfig, others: dict[int, SourceRows]) -> int:
    """Rows of an endless source that go with all that the others have."""
    ends = [other for other, entry in enumerate(config.sources) if not is_endless(entry)]
    if not ends:
        raise UserError(f"{config.sources[number].source} has no end: say by num_train how many rows to train on")
    weights = [config.sources[other].weight for other in ends]
    rows = most_rows([len(others[other].spool) for other in ends], weights)
    return ceil(rows * config.sources[number].weight / sum(weights)) + 1


def _check_kinds(collected: Sequence[SourceRows]) -> None:
    kinds = {
        one.entry.source: next(kind for kind, known in RECORDS.items() if known is one.record) for one in collected
    }
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{source} of kind '{kind}'" for source, kind in kinds.items())
        raise UserError(
            f"source: the rows of one dataset are of one kind, but there are {told}; `rows: conversation` makes "
            "conversations of problems and preferences"
        )
