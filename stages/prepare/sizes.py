"""How many rows each split gets, and each source of a mixture gives to it."""

from collections.abc import Mapping, Sequence
from typing import Literal

from stages.prepare.config import PrepareConfig

Split = Literal["train", "validation", "held_out"]
SPLITS: tuple[Split, ...] = ("train", "validation", "held_out")


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `total`, as near to the weights as that allows (largest remainders)."""
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(weights)), key=lambda at: (counts[at] - exact[at], at))
    for at in by_remainder[: total - sum(counts)]:
        counts[at] += 1
    return counts


def most_rows(available: Sequence[int], weights: Sequence[float]) -> int:
    """The most rows that can be taken by these weights from sources that have so many."""
    shares = (weight / sum(weights) for weight in weights)
    most = int(min(rows / share for rows, share in zip(available, shares, strict=True))) + len(weights)
    while any(taken > rows for taken, rows in zip(apportion(most, weights), available, strict=True)):
        most -= 1
    return most


def rows_needed(config: PrepareConfig) -> int | None:
    """Rows of all splits together; None where the rest is for training, however much it is."""
    if config.num_train is None:
        return None
    counted = config.num_train + config.num_validation + config.num_held_out
    return round(counted / (1 - config.validation_share - config.held_out_share))


def split_sizes(config: PrepareConfig, num_rows: int) -> Mapping[Split, int | None]:
    """Rows of each split, of so many that are used; None for training where it gets the rest."""
    return {
        "train": config.num_train,
        "validation": config.num_validation + round(config.validation_share * num_rows),
        "held_out": config.num_held_out + round(config.held_out_share * num_rows),
    }
