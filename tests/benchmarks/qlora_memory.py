"""Memory and time of a training step: all weights, an adapter over a full base, and an adapter over a base in few bits.

    python tests/benchmarks/qlora_memory.py [--tokens 512] [--rows 1] [--steps 3]

Each way runs in a process of its own: forward and backward pass and AdamW on a decoder of SmolLM2-135M's shape with
random weights, layers computed again in the backward pass. It prints the bytes of the weights; how far the process's
own memory (RssAnon) is above what it was before any weight was there, at its highest once all is compiled; what the
compiler plans for the larger of the two programs with all that lives beside it; and the time of the fastest step. Times
compare within one run only.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import PyTree

sys.path.insert(0, str(Path(__file__).parents[2]))

from stages.contract import Quantization
from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.architecture import Architecture, RopeSettings
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights, adapted_decoder, split
from stages.engine.models.quantise import converters
from stages.engine.models.transformer import Decoder
from stages.engine.training.optimizer import UpdateRule
from stages.engine.training.state import OptimizerState
from stages.engine.training.step import make_gradient, make_update
from stages.sft.loss import make_sft_loss

ARCH = Architecture(
    num_layers=30,
    width=576,
    hidden=1536,
    num_heads=9,
    num_kv_heads=3,
    head_size=64,
    vocab_size=49152,
    rope=RopeSettings(1e5),
    norm_epsilon=1e-5,
    tied_embeddings=True,
    max_positions=8192,
)
LORA = LoraConfig(rank=16, alpha=32)
RATE = 1e-4
WAYS = ("full", "lora", "int8", "int4", "nf4")


class Measured(NamedTuple):
    """Of one way of training, in bytes and seconds."""

    weights: int
    peak: int
    planned: int
    step: float


class Watch:
    """The highest RssAnon since it began, asked for every 5 ms."""

    def __init__(self) -> None:
        self.start = self.highest = rss()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.highest = max(self.highest, rss())
            time.sleep(0.005)


def rss() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def make_model(way: str) -> tuple[Frozen, Weights]:
    """Random weights, made kernel by kernel as a loader reads them."""
    how = Quantization.model_validate({"kind": way}) if way not in ("full", "lora") else None
    convert = converters(ARCH, how) if how else {}
    weights, random = dict[str, jax.Array](), np.random.default_rng(0)
    for path, leaf in nnx.state(nnx.eval_shape(lambda: Decoder(ARCH, rngs=nnx.Rngs(0)))).flat_state():
        name, stacked = (
            ".".join(map(str, path)),
            [random.standard_normal(part, np.float32) * 0.02 for part in [leaf.shape[1:]] * leaf.shape[0]],
        )
        if name in convert:
            parts = [convert[name](layer) for layer in stacked]
            weights |= {f"{name}.{part}": jnp.asarray(np.stack([each[part] for each in parts])) for part in parts[0]}
        else:
            weights[name] = jnp.asarray(np.stack(stacked), jnp.float32)
    if way == "full":
        graph, state = nnx.split(nnx.eval_shape(lambda: Decoder(ARCH, rngs=nnx.Rngs(0))))
        leaves = [(path, weights[".".join(map(str, path))]) for path, _ in state.flat_state()]
        return split(nnx.merge(graph, nnx.from_flat_state(leaves)), nnx.Param)
    return split(adapted_decoder(ARCH, weights, LORA, 0, how))


def make_batch(rows: int, tokens: int) -> Batch:
    ids = np.random.default_rng(1).integers(0, ARCH.vocab_size, (rows, tokens + 1)).tolist()
    packed = [PackedRow((), [Group(row[: tokens // 2], [row[tokens // 2 :]])]) for row in ids]
    return pack_rows(packed, TargetShape(1, 1, tokens - tokens // 2 + 1), tokens)


def measure(way: str, rows: int, tokens: int, steps: int) -> Measured:
    batch, watch = make_batch(rows, tokens), Watch()
    frozen, weights = make_model(way)
    rule = UpdateRule(optax.adamw(RATE), optax.constant_schedule(RATE))
    gradient = jax.jit(make_gradient(make_sft_loss(frozen.graph, "full")))
    update = jax.jit(make_update(rule))
    moments = rule.transform.init(weights)
    state, times = OptimizerState(moments, {}, jnp.int32(0), jnp.int32(0)), list[float]()
    for step in range(1 + steps):
        if step == 1:
            watch.highest = 0
        started = time.perf_counter()
        applied = update(weights, state, gradient(weights, frozen.base, batch))
        weights, state = jax.block_until_ready((applied.weights, applied.optimizer))
        times.append(time.perf_counter() - started)
    peak = watch.highest - watch.start
    programs = (
        planned(gradient.lower(weights, frozen.base, batch)) + stored(state),
        planned(update.lower(weights, state, gradient(weights, frozen.base, batch))) + stored(frozen.base),
    )
    return Measured(stored((weights, frozen.base)), peak, max(programs), min(times[1:]))


def planned(lowered: jax.stages.Lowered) -> int:
    plan = lowered.compile().memory_analysis()
    assert plan is not None
    return plan.argument_size_in_bytes + plan.temp_size_in_bytes + plan.output_size_in_bytes


def stored(tree: PyTree) -> int:
    """Bytes of all arrays; two values of 4 bits share one."""
    bits = (4 if leaf.dtype in (jnp.int4, jnp.uint4) else 8 * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
    return sum(leaf.size * size // 8 for leaf, size in zip(jax.tree.leaves(tree), bits, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(measure(asked.way, asked.rows, asked.tokens, asked.steps)))
        return
    print(f"{asked.rows} x {asked.tokens} tokens; MB, s")
    print(f"{'':6}{'weights':>9}{'peak':>9}{'planned':>9}{'step':>8}")
    for way in WAYS:
        sizes = ["--rows", str(asked.rows), "--tokens", str(asked.tokens), "--steps", str(asked.steps)]
        done = subprocess.run(
            [sys.executable, __file__, "--way", way, *sizes], check=True, capture_output=True, text=True
        )
        found = Measured(*json.loads(done.stdout))
        sizes_in_mb = "".join(f"{size / 1e6:9.0f}" for size in found[:3])
        print(f"{way:6}{sizes_in_mb}{found.step:8.2f}", flush=True)


if __name__ == "__main__":
    main()
