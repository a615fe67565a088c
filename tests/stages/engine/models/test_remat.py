"""Layers that are computed again in the backward pass: the same numbers from less memory."""

from typing import cast

import jax
import numpy as np
import pytest
from flax import nnx
from jaxtyping import Array

from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.architecture import Architecture, RopeSettings
from stages.engine.models.config import Remat
from stages.engine.models.heads import score_targets
from stages.engine.models.transformer import Decoder

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ARCH = Architecture(
    num_layers=4,
    width=32,
    hidden=96,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    vocab_size=64,
    rope=RopeSettings(1e4),
    norm_epsilon=1e-5,
    tied_embeddings=True,
    max_positions=128,
)
BATCH = pack_rows(
    [PackedRow((), [Group([1 + row], [[(row + 7 * n) % 64 for n in range(64)]])]) for row in range(4)],
    TargetShape(1, 1, 64),
    64,
)
Compiled = tuple[float, list[Array], int]


@pytest.fixture(scope="module")
def results() -> dict[Remat, Compiled]:
    """By policy: the loss, its gradient, and the bytes that the compiled program needs for a while."""
    graph, weights = nnx.split(Decoder(ARCH, rngs=nnx.Rngs(0)))

    def compute(remat: Remat) -> Compiled:
        def loss(weights: nnx.State, batch: Batch) -> Array:
            return -score_targets(nnx.merge(graph, weights), batch, remat=remat).sum()

        program = jax.jit(jax.value_and_grad(loss)).lower(weights, BATCH).compile()
        value, gradient = program(weights, BATCH)
        analysis = program.memory_analysis()
        assert analysis is not None
        return float(value), jax.tree.leaves(gradient), analysis.temp_size_in_bytes

    return {remat: compute(remat) for remat in cast("tuple[Remat, ...]", ("none", "dots", "full"))}


@pytest.mark.parametrize("remat", ["dots", "full"])
def test_value_and_gradient_are_those_of_a_pass_that_stores_everything(
    results: dict[Remat, Compiled], remat: Remat
) -> None:
    (value, gradient, _), (expected, leaves, _) = results[remat], results["none"]
    assert value == pytest.approx(expected, rel=1e-6)
    for found, leaf in zip(gradient, leaves, strict=True):
        np.testing.assert_allclose(found, leaf, atol=1e-5 * float(np.abs(leaf).max()))


def test_the_less_is_stored_the_less_memory_a_pass_takes(results: dict[Remat, Compiled]) -> None:
    sizes = [results[remat][2] for remat in ("none", "dots", "full")]
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * 1.2 * sizes[2], sizes
