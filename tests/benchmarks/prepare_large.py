"""Prints rows a second and memory of `prepare` on a file of conversations that is made for it.

Run: python tests/benchmarks/prepare_large.py [megabytes]
"""

import json
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from stages.context import RunContext
from stages.contract import StageRequest
from stages.prepare.config import PrepareConfig
from stages.prepare.run import run
from stages.sources.resolve import resolve
from stages.store.conditional import open_store

WORDS = [f"word{number}" for number in range(5000)]


def write_conversations(path: Path, num_bytes: int) -> int:
    """Conversations of two turns, about 700 bytes each; how many."""
    rng = np.random.default_rng(0)
    num_rows = 0
    with path.open("w") as file:
        while file.tell() < num_bytes:
            for words in rng.integers(0, len(WORDS), (1000, 80)):
                said = [WORDS[word] for word in words]
                turns = [
                    {"role": "user", "content": " ".join(said[:20])},
                    {"role": "assistant", "content": " ".join(said[20:])},
                ]
                file.write(json.dumps({"messages": turns}) + "\n")
            num_rows += 1000
    return num_rows


def peak() -> float:
    """Megabytes that the process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_rows = write_conversations(folder / "rows.jsonl", megabytes << 20)
        config = PrepareConfig(source=str(folder / "rows.jsonl"), held_out_share=0.01, seed=1)
        request = StageRequest(
            stage_id="prepare",
            kind="prepare",
            version=1,
            key="0" * 64,
            config=config.model_dump_json(),
            inputs={},
            sources=(resolve(config.sources[0].source, folder),),
            store=f"file://{folder}/store",
            attempt="000001-a",
            epoch=1,
            resume=(),
            scratch=str(folder / "scratch"),
            cache=str(folder / "cache"),
        )
        context = RunContext(request, open_store(request.store), threading.Event())
        before, start = peak(), time.perf_counter()
        run(context, config)
        seconds = time.perf_counter() - start
    print(
        f"{megabytes} MB, {num_rows} rows: {num_rows / seconds:.0f} rows/s, {peak() - before:.0f} MB more than before"
    )


if __name__ == "__main__":
    main()
