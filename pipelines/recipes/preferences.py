"""Preferences without a source: of two replies to a sum, the one that is right and brief is better."""

from collections.abc import Iterator
from itertools import product


def create_dataset() -> Iterator[dict[str, str | float]]:
    """Sums of two numbers up to 11: first those that talk, then those that are off, which are worse by less."""
    for first, second in product(range(12), repeat=2):
        total = first + second
        question = {"prompt": f"{first} + {second}?", "chosen": str(total)}
        yield {**question, "rejected": f"Let me see, {total}", "margin": 1.0}
    for first, second in product(range(12), repeat=2):
        total = first + second
        yield {"prompt": f"{first} + {second} = ?", "chosen": str(total), "rejected": f"{total + 1}?", "margin": 0.5}
