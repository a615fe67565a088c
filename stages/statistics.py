"""95% intervals by the percentile bootstrap (Efron, 1979), with the standard library and one fixed seed."""

import bisect
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stages.errors import UserError

LEVEL = 0.95
RESAMPLES = 4000
SEED = 20260117
_SIGMAS = 10.0
_FEW_VALUES = 3
_IDS_SHOWN = 3


@dataclass(frozen=True)
class Interval:
    """A mean over `count` samples and the 95% interval around it.

    When all samples are equal the interval has no width: the bootstrap knows nothing beyond the samples.
    """

    mean: float
    low: float
    high: float
    count: int


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of samples.

    Raises:
        UserError: there are none.
    """
    if not values:
        raise UserError("an interval needs at least one sample")
    means = sorted(_resampled_means(sorted(values)))
    outside = int(RESAMPLES * (1 - LEVEL) / 2)
    mean = math.fsum(values) / len(values)
    return Interval(mean, means[outside], means[RESAMPLES - 1 - outside], len(values))


def paired_difference(first: Mapping[str, float], second: Mapping[str, float]) -> Interval:
    """The mean of `first` minus `second` over the same samples, by id; pairs are resampled together.

    Raises:
        UserError: the two do not have the same ids.
    """
    if first.keys() != second.keys():
        sides = (("first", sorted(first.keys() - second.keys())), ("second", sorted(second.keys() - first.keys())))
        parts = [f"{len(ids)} only in the {side} ({_some(ids)})" for side, ids in sides if ids]
        raise UserError(f"a paired difference needs the same samples in both reports: {', '.join(parts)}")
    return mean_interval([first[key] - second[key] for key in sorted(first)])


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_IDS_SHOWN]) + (", …" if len(ids) > _IDS_SHOWN else "")


def _resampled_means(values: Sequence[float]) -> Iterator[float]:
    """Means of resamples of the same size, drawn with replacement.

    How often each value is drawn is multinomial. With few different values, as in right and wrong answers, these counts
    are drawn themselves, which has the same distribution and does not depend on the number of samples.
    """
    generator = random.Random(SEED)  # noqa: S311
    counts = Counter(values)
    if len(counts) <= _FEW_VALUES:
        return _means_from_counts(generator, counts, len(values))
    return (math.fsum(generator.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))


def _means_from_counts(generator: random.Random, counts: Counter[float], total: int) -> Iterator[float]:
    tables: dict[tuple[int, float], _Binomial] = {}
    for _ in range(RESAMPLES):
        parts: list[float] = []
        left, weight = total, total
        for value, count in counts.items():
            share = count / weight
            table = tables.get((left, share))
            if table is None:
                table = tables[left, share] = _Binomial(left, share)
            drawn = table.draw(generator.random())
            parts.append(value * drawn)
            left, weight = left - drawn, weight - count
        yield math.fsum(parts) / total


class _Binomial:
    """The number of successes in `trials`, by inversion of its distribution within ten standard deviations."""

    def __init__(self, trials: int, chance: float) -> None:
        mean, width = trials * chance, _SIGMAS * (math.sqrt(trials * chance * (1 - chance)) + 1)
        self._start = trials if chance >= 1 else max(0, math.floor(mean - width))
        last = min(trials, math.ceil(mean + width))
        weights = [1.0]
        for successes in range(self._start, last):
            # The ratio of neighbouring probabilities; their common factor drops out below.
            ratio = (trials - successes) / (successes + 1) * chance / (1 - chance)
            weights.append(weights[-1] * ratio)
        self._cumulative = list(itertools.accumulate(weights))

    def draw(self, uniform: float) -> int:
        place = bisect.bisect_right(self._cumulative, uniform * self._cumulative[-1])
        return self._start + min(place, len(self._cumulative) - 1)
