"""Passes of our decoder, and the machine's matrix product, for `model_speed.py`."""

import sys
from pathlib import Path

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, PyTree
from speed_worker import Sizes, serve, sizes_given

sys.path.insert(0, str(Path(__file__).parents[2]))

from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.architecture import Architecture, RopeSettings
from stages.engine.models.heads import score_targets
from stages.engine.models.transformer import Decoder

SQUARE = 2048


def make_model(sizes: Sizes) -> Decoder:
    arch = Architecture(
        *sizes[:7],
        rope=RopeSettings(1e6),
        norm_epsilon=1e-6,
        tied_embeddings=True,
        max_positions=4096,
        qk_norm=True,
    )
    return Decoder(arch, rngs=nnx.Rngs(0))


def make_batch(sizes: Sizes) -> Batch:
    ids = np.random.default_rng(0).integers(0, sizes.vocab_size, (sizes.rows, sizes.tokens + 1)).tolist()
    rows = [PackedRow((), [Group(row[:1], [row[1:]])]) for row in ids]
    return pack_rows(rows, TargetShape(1, 1, sizes.tokens), sizes.tokens)


def main() -> None:
    sizes = sizes_given()
    graph, weights = nnx.split(make_model(sizes))
    batch, square = make_batch(sizes), jax.random.normal(jax.random.key(0), (SQUARE, SQUARE))

    def loss(weights: PyTree, batch: Batch) -> Array:
        return -score_targets(nnx.merge(graph, weights), batch).mean()

    forward, both = jax.jit(loss), jax.jit(jax.value_and_grad(loss))
    product = jax.jit(lambda square: square @ square)

    def run_peak() -> None:
        jax.block_until_ready(product(square))

    def run_forward() -> None:
        jax.block_until_ready(forward(weights, batch))

    def run_both() -> None:
        jax.block_until_ready(both(weights, batch))

    serve({"peak": run_peak, "forward": run_forward, "both": run_both})


if __name__ == "__main__":
    main()
