"""Which rows of which source go into which split, and in what order."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, UInt64

from stages.engine.data.loader import shuffled_rows
from stages.prepare.sizes import Split, apportion, most_rows


class Chosen(NamedTuple):
    """The rows of a split in their order.

    Attributes:
        sources: number of the source that each comes from.
        rows: number of the row in its source.
    """

    sources: Int64[np.ndarray, " rows"]
    rows: Int64[np.ndarray, " rows"]


class ShortageError(Exception):
    """A source has too few rows for what its weight asks of it; the caller knows what it is called."""

    def __init__(self, source: int, split: Split, wanted: int, available: int) -> None:
        super().__init__(f"source {source} has {available} rows for {split}, {wanted} are wanted")
        self.source = source
        self.split = split
        self.wanted = wanted
        self.available = available


def first_of_each(contents: Sequence[UInt64[np.ndarray, " _"]]) -> list[Bool[np.ndarray, " _"]]:
    """For each row of each source whether no row before it, in this source or an earlier one, is the same."""
    everything = np.concatenate(contents)
    first = np.zeros(len(everything), np.bool_)
    first[np.unique(everything, return_index=True)[1]] = True
    return np.split(first, np.cumsum([len(one) for one in contents])[:-1])


def choose_splits(
    prompts: Sequence[UInt64[np.ndarray, " _"]], weights: Sequence[float], sizes: Mapping[Split, int | None], seed: int
) -> tuple[dict[Split, Chosen], list[Int64[np.ndarray, " _"]]]:
    """Rows for each split: no prompt of one stands in another.

    Rows are shuffled source by source. Those to evaluate on come first, from the end; a row to train on that has the
    prompt of one of them is left out.

    Args:
        prompts: of each source, the fingerprints of what its rows ask.
        weights: of the sources.
        sizes: rows of each split; None of training stands for all that is left, as far as the weights allow.
        seed: another one gives other splits.

    Returns:
        The splits, and of each source the rows that ask what another split asks.

    Raises:
        ShortageError: a source has too few rows.
    """
    left = [shuffled_rows(len(one), seed, epoch) for epoch, one in enumerate(prompts)]
    taken = np.zeros(0, np.uint64)
    chosen: dict[Split, Chosen] = {}
    for split in ("held_out", "validation"):
        counts = apportion(sizes[split] or 0, weights)
        parts: list[Int64[np.ndarray, " _"]] = []
        for source, count in enumerate(counts):
            usable = np.flatnonzero(~np.isin(prompts[source][left[source]], taken))
            _check(source, split, count, len(usable))
            places = usable[len(usable) - count :]
            parts.append(left[source][places])
            left[source] = np.delete(left[source], places)
        chosen[split] = _interleave(parts)
        taken = np.concatenate([taken, *(prompts[source][part] for source, part in enumerate(parts))])
    free = [~np.isin(prompts[source][rows], taken) for source, rows in enumerate(left)]
    usable = [rows[is_free] for rows, is_free in zip(left, free, strict=True)]
    total = sizes["train"]
    total = most_rows([len(rows) for rows in usable], weights) if total is None else total
    counts = apportion(total, weights)
    for source, count in enumerate(counts):
        _check(source, "train", count, len(usable[source]))
    chosen["train"] = _interleave([rows[:count] for rows, count in zip(usable, counts, strict=True)])
    return chosen, [np.sort(rows[~is_free]) for rows, is_free in zip(left, free, strict=True)]


def _check(source: int, split: Split, wanted: int, available: int) -> None:
    if wanted > available:
        raise ShortageError(source, split, wanted, available)


def _interleave(parts: Sequence[Int64[np.ndarray, " _"]]) -> Chosen:
    """The rows of all sources, so that every stretch has them in about the same proportion."""
    places = [(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in parts]
    order = np.argsort(np.concatenate(places), kind="stable")
    sources = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return Chosen(sources[order], np.concatenate(parts)[order])
