"""What a process of `model_speed.py` does: timed passes on request, one line in and one line out."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Pass = Callable[[], None]
"""Runs to the end before it returns."""


class Sizes(NamedTuple):
    """A Qwen3 with tied embeddings, and a batch for it."""

    num_layers: int
    width: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    rows: int
    tokens: int


def sizes_given() -> Sizes:
    """Those of the command line."""
    return Sizes(*json.loads(sys.argv[1]))


def serve(passes: Mapping[str, Pass]) -> None:
    """Warms each pass up, then runs the one named by each line and answers with its seconds and CPU seconds."""
    for run in passes.values():
        run()
    print("ready", flush=True)
    for line in sys.stdin:
        start, cpu_start = time.perf_counter(), time.process_time()
        passes[line.strip()]()
        print(time.perf_counter() - start, time.process_time() - cpu_start, flush=True)
