"""How fast SmolLM2 is loaded from GGUF and from folders of ours, and such a folder written.

From opening to all weights on the device, without imports. Run `python tests/benchmarks/model_loading.py`.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "probe"))

from real_models import smollm2

from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.models.weights.gguf_checkpoint import gguf_checkpoint
from stages.engine.models.weights.load import load_weights, open_checkpoint, read_weights
from stages.engine.models.weights.save import save_hf

ROUNDS = 4


def timed(what: str, run: Callable[[], object]) -> None:
    """The first time, in which programs are compiled, and the best of the others."""
    clock, work = list[float](), list[float]()
    for _ in range(ROUNDS):
        start, used = time.perf_counter(), time.process_time()
        run()
        clock.append(time.perf_counter() - start)
        work.append(time.process_time() - used)
    print(
        f"{what:32s} first {clock[0]:6.2f} s, {work[0]:6.2f} s of processors; "
        f"then {min(clock[1:]):6.2f} s, {min(work[1:]):6.2f} s of processors"
    )


def load(path: Path, dtype: str) -> None:
    jax.block_until_ready(nnx.state(load_weights(open_checkpoint(path), dtype=jnp.dtype(dtype))))


def main() -> None:
    jax.block_until_ready(jnp.ones(3) + 1)
    for kept in ("float32", "bfloat16"):
        timed(f"GGUF to {kept}", lambda kept=kept: load(smollm2(), kept))
    file = open_gguf(smollm2())
    checkpoint, tokenizer = gguf_checkpoint(file), tokenizer_from_gguf(file.metadata, str(file.path))
    weights = read_weights(checkpoint)
    for stored in ("float32", "bfloat16"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)

            def save(folder: Path = folder, stored: str = stored) -> None:
                save_hf(folder, checkpoint.family, checkpoint.arch, weights.items(), tokenizer, dtype=jnp.dtype(stored))

            timed(f"write a {stored} folder", save)
            for kept in ("float32", "bfloat16"):
                timed(f"{stored} folder to {kept}", lambda folder=folder, kept=kept: load(folder, kept))


main()
