"""How fast a GGUF file's header and tensors are read, against ggml's own Python package in the same run.

Run `python tests/benchmarks/gguf_reading.py [FILE.gguf]` with the packages of `infra/locks/parity.txt`.
"""

# pyright: reportMissingImports=false

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "probe"))

import real_models

from stages.engine.data.ggml_types import GGML_TYPES
from stages.engine.data.gguf import GgufFile, open_gguf
from stages.engine.models.weights.gguf import read_tensor

ROUNDS = 3


def best(what: str, run: Callable[[], None], rounds: int = ROUNDS) -> float:
    """The least of the processor's seconds, which other work on the machine lengthens less than those of the clock."""
    clock, work = float("inf"), float("inf")
    for _ in range(rounds):
        start, used = time.perf_counter(), time.process_time()
        run()
        clock, work = min(clock, time.perf_counter() - start), min(work, time.process_time() - used)
    print(f"{what:48s} {clock:7.3f} s, {work:7.3f} s of processors")
    return work


def read_all(file: GgufFile, num_threads: int, out: dict[str, np.ndarray]) -> None:
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(lambda name: read_tensor(file, name, out.get(name)), file.tensors))


def peer_all(path: Path) -> None:
    for tensor in gguf.GGUFReader(path).tensors:
        gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, nargs="?", default=None, help="a .gguf file")
    path = parser.parse_args().path or real_models.smollm2()
    file = open_gguf(path)
    kinds = Counter(GGML_TYPES[tensor.quantization].name for tensor in file.tensors.values())
    out = {name: np.zeros(tensor.shape, np.float32) for name, tensor in file.tensors.items()}
    print(f"{path.name}: {sum(map(np.size, out.values())) / 1e6:.0f}M values, {dict(kinds)}")
    header = best("header", lambda: open_gguf(path) and None)
    ours = best("tensors, one thread, into arrays that are there", lambda: read_all(file, 1, out))
    best("tensors, two threads, into arrays that are there", lambda: read_all(file, 2, out))
    best("tensors, one thread, into new arrays", lambda: read_all(file, 1, {}))
    peer = best("header, ggml's package", lambda: gguf.GGUFReader(path) and None, rounds=1)
    peer_tensors = best("header and tensors, ggml's package", lambda: peer_all(path), rounds=1)
    print(f"ggml's package takes {peer / header:.0f} times as long for the header", end=" ")
    print(f"and {(peer_tensors - peer) / ours:.1f} times for the tensors")


if __name__ == "__main__":
    main()
