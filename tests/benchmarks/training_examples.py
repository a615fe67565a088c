"""Preference pairs that `training_speed.py` trains on; imports no library that only some of its systems have."""

from typing import NamedTuple

import numpy as np
from speed_worker import Sizes

NUM_UPDATES = 2
"""Of one pass."""
LONGEST = 256
"""Tokens of the longest prompt and of the longest response among those of many lengths."""
PROMPTS, RESPONSES, SPREAD = 32, 64, 1.0
"""Medians, and the standard deviation of the logarithm of a length."""


class Pair(NamedTuple):
    """Two responses to a prompt, in token ids."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]

    @property
    def text(self) -> list[int]:
        """What supervised fine-tuning learns of it, every token after the first."""
        return self.prompt + self.chosen


def equal_pairs(sizes: Sizes) -> list[Pair]:
    """Of one length, `sizes.tokens` with either response: nobody pads anything."""
    quarter = sizes.tokens // 4
    return _pairs(
        sizes, lambda median: np.full(sizes.rows * NUM_UPDATES, quarter if median == PROMPTS else 3 * quarter)
    )


def mixed_pairs(sizes: Sizes) -> list[Pair]:
    """Of lengths as in chats: log-normal, cut off at `LONGEST`, with one pair of the longest."""
    random = np.random.default_rng(1)

    def lengths(median: int) -> np.ndarray:
        drawn = np.exp(random.normal(np.log(median), SPREAD, sizes.rows * NUM_UPDATES))
        found = np.clip(drawn.astype(int), 4, LONGEST)
        found[0] = LONGEST
        return found

    return _pairs(sizes, lengths)


def _pairs(sizes: Sizes, lengths) -> list[Pair]:
    random = np.random.default_rng(0)
    all_lengths = zip(lengths(PROMPTS), lengths(RESPONSES), lengths(RESPONSES), strict=True)
    return [Pair(*(random.integers(3, sizes.vocab_size, size).tolist() for size in each)) for each in all_lengths]


def updates(pairs: list[Pair], sizes: Sizes) -> list[list[Pair]]:
    """The pairs of each update."""
    return [pairs[start : start + sizes.rows] for start in range(0, len(pairs), sizes.rows)]


def num_tokens(pairs: list[Pair], what: str) -> int:
    """Of the data, without padding; `dpo` counts a prompt with each of its responses."""
    if what == "sft":
        return sum(len(pair.text) for pair in pairs)
    return sum(2 * len(pair.prompt) + len(pair.chosen) + len(pair.rejected) for pair in pairs)


SETS = {"equal": equal_pairs, "mixed": mixed_pairs}
