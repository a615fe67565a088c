"""Kernels in few bits: what they stand for, and how far that is from what they were."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix
from jaxtyping import Float32

from stages.contract import Quantization
from stages.engine.models.architecture import Architecture, Experts, RopeSettings
from stages.engine.models.quantise import QVALUE, SCALE, converters, dequantise, quantise
from stages.errors import UserError

KINDS = pytest.mark.parametrize("kind", ["nf4", "int8", "int4"])
ARCH = Architecture(
    num_layers=2,
    width=96,
    hidden=160,
    num_heads=4,
    num_kv_heads=2,
    head_size=16,
    vocab_size=64,
    rope=RopeSettings(1e4),
    norm_epsilon=1e-5,
    tied_embeddings=True,
    max_positions=64,
)


def kernel(*shape: int) -> Float32[np.ndarray, "..."]:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def round_trip(weights: Float32[np.ndarray, "..."], how: Quantization) -> Float32[np.ndarray, "..."]:
    return np.asarray(dequantise(jax.tree.map(jnp.asarray, quantise(weights, how)), how))


@KINDS
def test_numbers_and_scales_are_those_that_qwix_computes(kind: str) -> None:
    how, weights = Quantization.model_validate({"kind": kind, "tile_size": 32}), kernel(2, 96, 24)
    mine = quantise(weights, how)
    theirs = qwix.quantize(jnp.asarray(weights), kind, channelwise_axes=(0, 2), tiled_axes={1: 32})
    assert mine[QVALUE].dtype == theirs.qvalue.dtype
    np.testing.assert_array_equal(mine[QVALUE].astype(int), np.asarray(theirs.qvalue).astype(int))
    np.testing.assert_array_equal(mine[SCALE], theirs.scale)


def test_levels_worked_by_hand() -> None:
    column = np.array([[4.0], [-3.6], [0.1], [1.0]], np.float32)
    np.testing.assert_allclose(
        round_trip(column, Quantization(kind="nf4", tile_size=4))[:, 0], [4, -4, 0, 4 * 0.24611230], rtol=1e-6
    )
    np.testing.assert_allclose(
        round_trip(column, Quantization(kind="int4", tile_size=4))[:, 0],
        np.array([7, -7, 0, 2]) * 4 / 7.5,
        rtol=1e-6,
    )


@pytest.mark.parametrize(("kind", "half_step"), [("int8", 0.5 / 127.5), ("int4", 0.5 / 7.5), ("nf4", 0.1520)])
def test_a_weight_moves_by_half_a_step_of_its_tile_at_most(kind: str, half_step: float) -> None:
    how, weights = Quantization.model_validate({"kind": kind, "tile_size": 16}), kernel(64, 24)
    moved = np.abs(round_trip(weights, how) - weights).reshape(4, 16, 24)
    largest = np.abs(weights).reshape(4, 16, 24).max(axis=1, keepdims=True)
    assert (moved <= largest * half_step * 1.0001).all()
    assert moved.max() > 0


def test_normal_weights_lose_what_16_or_256_levels_cost() -> None:
    weights = kernel(576, 256)
    lost = {
        kind: float(np.linalg.norm(round_trip(weights, Quantization.model_validate({"kind": kind})) - weights))
        / float(np.linalg.norm(weights))
        for kind in ("nf4", "int8", "int4")
    }
    assert lost["int8"] < 0.007 < 0.08 < lost["nf4"] < 0.095 < lost["int4"] < 0.11


@KINDS
def test_a_tile_of_zeros_stays_zero(kind: str) -> None:
    weights = kernel(32, 4)
    weights[:16] = 0
    out = round_trip(weights, Quantization.model_validate({"kind": kind, "tile_size": 16}))
    assert not out[:16].any()
    assert np.isfinite(out).all()


def test_scales_keep_the_type_of_the_weights() -> None:
    parts = quantise(jnp.asarray(kernel(32, 4), jnp.bfloat16), Quantization(kind="nf4", tile_size=16))
    assert parts[SCALE].dtype == jnp.bfloat16


def test_every_linear_layer_of_a_block_is_converted_and_its_layers_stack() -> None:
    found = converters(ARCH, Quantization(kind="nf4", tile_size=32))
    assert sorted(found) == sorted(
        f"blocks.{name}_proj.kernel"
        for name in ("attention.q", "attention.k", "attention.v", "attention.o", "mlp.gate", "mlp.up", "mlp.down")
    )
    layers = jnp.asarray(kernel(2, 96, 160))
    convert = found["blocks.mlp.up_proj.kernel"]
    stacked, whole = jax.tree.map(lambda *parts: np.stack(parts), *map(convert, layers)), convert(layers)
    assert {name: part.shape for name, part in whole.items()} == {QVALUE: (2, 96, 160), SCALE: (2, 3, 160)}
    assert all(np.array_equal(stacked[name], whole[name]) for name in whole)


def test_tiles_that_do_not_fit_are_refused_with_every_layer() -> None:
    with pytest.raises(UserError, match=r"64 does not .* attention\.q_proj has 96, .* mlp\.down_proj has 160"):
        converters(ARCH, Quantization(kind="int8"))


def test_the_experts_of_a_mixture_are_converted_and_its_router_is_not() -> None:
    mixture = replace(ARCH, experts=Experts(count=4, per_token=2, hidden=40, normalized=True))
    assert converters(mixture, Quantization(kind="int8", tile_size=8)).keys() == set(
        converters(ARCH, Quantization(kind="int8", tile_size=32))
    )
    with pytest.raises(UserError, match=r"32 does not divide .* layers: mlp\.down_proj has 40$"):
        converters(mixture, Quantization(kind="int8", tile_size=32))
