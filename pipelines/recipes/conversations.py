"""Conversations without a source: sums that go on from the one before."""

from collections.abc import Iterator
from itertools import product


def create_dataset() -> Iterator[dict[str, list[dict[str, str]]]]:
    """Two or three questions and replies each, about digits."""
    for first, second, third in product(range(10), repeat=3):
        turns = [(f"{first} + {second}?", first + second), (f"and {third}?", first + second + third)]
        if third % 2:
            turns.append(("and 1?", first + second + third + 1))
        messages: list[dict[str, str]] = []
        for question, total in turns:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": str(total)}]
        yield {"messages": messages}
