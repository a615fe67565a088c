"""Compile time of 30 layers scanned and unrolled: `python tests/benchmarks/compile_layers.py`.

What is compiled is the gradient of all weights, in SmolLM2-135M's sizes.
"""

import os
import time
from functools import partial
from unittest import mock

os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import jax
from flax import nnx
from jaxtyping import Array, PyTree
from model_speed import SHAPES
from speed_of_temper import make_batch, make_model

from stages.engine.data.batching import Batch
from stages.engine.models.heads import score_targets


def main() -> None:
    sizes = SHAPES["smollm2"]
    graph, weights = nnx.split(nnx.eval_shape(lambda: make_model(sizes)))
    batch = make_batch(sizes)
    for name, scan in {"scanned": jax.lax.scan, "unrolled": partial(jax.lax.scan, unroll=True)}.items():

        def loss(weights: PyTree, batch: Batch) -> Array:
            return -score_targets(nnx.merge(graph, weights), batch).sum()

        with mock.patch.object(jax.lax, "scan", scan):
            start = time.perf_counter()
            jax.jit(jax.grad(loss)).lower(weights, batch).compile()
            print(f"{name:<9}{time.perf_counter() - start:>6.1f} s", flush=True)


if __name__ == "__main__":
    main()
