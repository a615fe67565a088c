"""How full packed rows are, and how long packing and tokenising take: `python tests/benchmarks/packing.py [MODEL]`.

Times are those of the processor. Lengths are those of chats: log-normal around 200 tokens, cut off at 16 and 1,024.
MODEL is a folder with a tokenizer and a chat template; without it nothing is tokenised.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import TypeVar

import numpy as np

from stages.engine.data.batching import Group, group_width, round_up
from stages.engine.data.chat import Chat
from stages.engine.data.examples import conversation_rows, fit_lengths, text_rows
from stages.engine.data.packing import choose_packing, filling
from stages.engine.data.records import ChatRow, Message, TextRow
from stages.engine.data.tokenizer import load_tokenizer

ResultT = TypeVar("ResultT")

BATCH_SIZES, NUM_DEVICES, SYSTEMS = (8, 16, 64, 256), (1, 8), (0, 300)


def main() -> None:
    """Prints a line for each case."""
    for system in SYSTEMS:
        groups = make_groups(5120, system)
        for num_devices in NUM_DEVICES:
            for batch_size in BATCH_SIZES:
                show_packing(groups, system, batch_size, num_devices)
    many = make_groups(100_000, 0)
    seconds, _ = timed(lambda: choose_packing(many, batch_size=64, micro_batch=8))
    print(f"choosing for 100,000 groups: {seconds:.2f} s")
    if len(sys.argv) > 1:
        show_tokenising(Path(sys.argv[1]))


def show_packing(groups: list[Group], system: int, batch_size: int, num_devices: int) -> None:
    """Padding of packed rows beside that of a row for each group as wide as the longest of its update."""
    packing = choose_packing(groups, batch_size=batch_size, micro_batch=8, num_devices=num_devices)
    updates = [groups[start : start + batch_size] for start in range(0, len(groups), batch_size)]
    packed = [timed(lambda update=update: packing.pack(update)) for update in updates]
    found = filling([part.batch for _, parts in packed for part in parts])
    padded = sum(len(update) * round_up(max(map(group_width, update))) for update in updates)
    print(
        f"system {system:3}, {batch_size:3} groups, {num_devices} devices: rows of {packing.width} and "
        f"{packing.num_targets} targets, {packing.num_rows} at a time; padding {found.padding_share:.1%} "
        f"(a row each: {1 - sum(map(group_width, groups)) / padded:.1%}), "
        f"packed in {1e3 * median(seconds for seconds, _ in packed):.2f} ms"
    )


def show_tokenising(model: Path) -> None:
    """Rows a second."""
    chat = Chat(load_tokenizer(model))
    turn = (Message(role="user", content="What is it? " * 12), Message(role="assistant", content="It is that. " * 25))
    talks = [ChatRow(id=str(n), messages=turn * (1 + n % 3)) for n in range(1000)]
    texts = [TextRow(id=str(n), text="It is what it is. " * 40) for n in range(10_000)]
    for name, rows, number in (
        ("conversations", conversation_rows(talks, chat, "all_turns"), len(talks)),
        ("texts", text_rows(texts, chat.tokenizer), len(texts)),
    ):
        seconds, found = timed(lambda rows=rows: fit_lengths(rows, 4096, "error"))
        tokens = sum(map(group_width, found.groups))
        print(f"{name}: {number / seconds:,.0f} rows/s, {tokens / seconds:,.0f} tokens/s")


def make_groups(number: int, system: int) -> list[Group]:
    """Groups whose prompts begin with `system` equal tokens."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.3, 0.7, number), 16, 1024).astype(int)
    responses = np.maximum(2, lengths * rng.uniform(0.3, 0.8, number)).astype(int)
    return [
        Group(np.concatenate([np.arange(system), rng.integers(1, 99, size - own)]).astype(np.int32), [ids(own)])
        for size, own in zip(lengths, responses, strict=True)
    ]


def ids(number: int) -> np.ndarray:
    """So many tokens."""
    return np.ones(number, np.int32)


def timed(call: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """Seconds of the processor, and what the call gives."""
    start = process_time()
    result = call()
    return process_time() - start, result


if __name__ == "__main__":
    main()
