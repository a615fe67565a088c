"""Dropout in adapters: what a mask depends on, and what it does to a step."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fresh_adapter import attach_lora
from jaxtyping import Array, Bool, Float
from stage_trial import TINY

from stages.engine.data.batching import Group
from stages.engine.data.layout import Layout
from stages.engine.models.config import LoraConfig
from stages.engine.models.dropout import (
    Dropout,
    NumberedBatch,
    TokenNumbers,
    dropout_noise,
    layer_keys,
    token_keys,
)
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind, split
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.load import load_decoder

pytestmark = pytest.mark.usefixtures("quickly_compiled")

GROUPS = [
    Group((1, 90, 91, 92, 50), [(60, 61, 2)]),
    Group((1, 90, 91, 92, 51, 52), [(62, 2)]),
    Group((1, 90, 91, 92, 53), [(2,)]),
    Group((1, 90, 91, 92, 54, 55), [(63, 64, 2)]),
]
NUM_SHARED = 4
APART = Layout(prefix=0, micro_batch=4, group_size=1, max_response=3, max_width=16)
TOGETHER = replace(APART, prefix=NUM_SHARED, max_width=32)


def numbered(layout: Layout, groups: slice = slice(None), update: int = 3) -> NumberedBatch:
    batch = layout.pack(GROUPS[groups])
    owners = layout.owners(groups, len(GROUPS), batch, NUM_SHARED)
    return NumberedBatch(batch, TokenNumbers(np.full(len(owners), update, np.int32), owners))


def masks(
    given: NumberedBatch, seed: int = 7, layer: int = 1, module: str = "mlp/down_proj"
) -> dict[tuple[int, ...], Bool[np.ndarray, " D"]]:
    """What is kept of 64 inputs of each token, by the token's group and position."""
    keys = layer_keys(token_keys(seed, given), 2)[layer]
    kept = np.asarray(dropout_noise(jnp.ones((*keys.shape, 64)), keys, 0.5, module)) > 0
    real = np.argwhere(given.batch.segment_ids != 0)
    return {(int(given.numbers.owner[*at]), int(given.batch.positions[*at])): kept[*at] for at in map(tuple, real)}


@pytest.fixture(scope="module")
def expected() -> dict[tuple[int, ...], Bool[np.ndarray, " D"]]:
    return masks(numbered(APART))


@pytest.mark.parametrize(
    "parts",
    [
        [numbered(TOGETHER)],
        [numbered(replace(APART, micro_batch=2), slice(0, 2)), numbered(replace(APART, micro_batch=2), slice(2, 4))],
        [
            numbered(replace(TOGETHER, micro_batch=3), slice(0, 3)),
            numbered(replace(TOGETHER, micro_batch=3), slice(3, 6)),
        ],
        [numbered(replace(TOGETHER, micro_batch=2, num_devices=2))],
        [numbered(replace(APART, micro_batch=3, num_devices=2))],
    ],
    ids=["one row", "two micro-batches", "two micro-batches of one row", "two devices", "two devices and empty rows"],
)
def test_masks_are_the_same_however_an_update_is_split_and_packed(
    parts: list[NumberedBatch], expected: dict[tuple[int, ...], Bool[np.ndarray, " D"]]
) -> None:
    found = {at: mask for part in parts for at, mask in masks(part).items()}
    assert found.keys() == expected.keys()
    assert len(found) == 15
    assert all(np.array_equal(found[at], expected[at]) for at in expected)


def test_every_token_update_seed_layer_and_module_has_its_own_mask(
    expected: dict[tuple[int, ...], Bool[np.ndarray, " D"]],
) -> None:
    given = numbered(APART)
    others = [
        masks(numbered(APART, update=4)),
        masks(given, seed=8),
        masks(given, seed=7 + (1 << 40)),
        masks(given, layer=0),
        masks(given, module="attention/q_proj"),
    ]
    all_masks = [tuple(mask) for found in (expected, *others) for mask in found.values()]
    assert len(set(all_masks)) == len(all_masks)


def test_what_is_kept_is_scaled_so_that_the_mean_stays() -> None:
    keys = jax.random.split(jax.random.key(0), (1, 4000))
    out = 2.0 + np.asarray(dropout_noise(jnp.full((1, 4000, 5), 2.0), keys, 0.25, "mlp/up_proj"))
    assert set(np.round(np.unique(out), 4)) == {0.0, np.round(np.float32(2 / 0.75), 4)}
    np.testing.assert_allclose((out == 0).mean(), 0.25, atol=0.01)
    np.testing.assert_allclose(out.mean(), 2.0, atol=0.03)


@pytest.fixture(scope="module")
def model() -> tuple[Frozen, Weights]:
    decoder = load_decoder(TINY)
    attach_lora(decoder, LoraConfig(rank=2, alpha=4, targets=("q_proj", "down_proj")), seed=3)
    frozen, adapter = split(decoder)
    return frozen, {name: value + 0.03 for name, value in adapter.items()}


def test_an_adapter_alone_misses_what_is_dropped(model: tuple[Frozen, Weights]) -> None:
    frozen, adapter = model
    given = numbered(APART)

    def score(adapter: Weights, base: Cells, rate: float) -> Float[Array, "B R"]:
        dropout = Dropout(token_keys(7, given), rate) if rate else None
        return score_targets(bind(frozen.graph, adapter, base, dropout), given.batch)

    run = jax.jit(score, static_argnums=2)
    nothing = {name: jnp.zeros_like(value) for name, value in adapter.items()}
    # With next to all inputs dropped an adapter says nothing; the base is never touched.
    np.testing.assert_allclose(run(adapter, frozen.base, 1 - 2**-20), run(nothing, frozen.base, 0.0), rtol=1e-4)


def test_a_step_drops_by_its_keys_and_is_right_on_average(model: tuple[Frozen, Weights]) -> None:
    frozen, adapter = model
    given = numbered(APART)

    def score(adapter: Weights, base: Cells, update: Array, rate: float) -> Float[Array, "B R"]:
        numbers = given.numbers._replace(update=jnp.broadcast_to(update, len(given.numbers.update)))
        dropout = Dropout(token_keys(7, given._replace(numbers=numbers)), rate) if rate else None
        return score_targets(bind(frozen.graph, adapter, base, dropout), given.batch)

    mask = given.batch.target_mask
    plain = jax.jit(score, static_argnums=3)(adapter, frozen.base, 0, 0.0)[mask]
    over = jax.jit(jax.vmap(score, in_axes=(None, None, 0, None)), static_argnums=3)
    drawn = np.asarray(over(adapter, frozen.base, jnp.arange(64), 0.1))[:, mask]
    error = drawn.mean(axis=0) - plain
    spread = drawn.std(axis=0)
    assert (spread > 1e-3).all()
    assert (np.abs(error) < 4 * spread / 8 + 0.02).all()
