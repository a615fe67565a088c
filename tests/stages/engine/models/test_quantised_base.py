"""A base in few bits under an adapter (QLoRA)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix
from fresh_adapter import attach_lora
from jaxtyping import Array, Float
from stage_trial import TINY

from stages.contract import Quantization
from stages.engine.data.batching import Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.config import LoraConfig
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind, split
from stages.engine.models.transformer import Cells, Decoder
from stages.engine.models.weights.load import load_decoder

pytestmark = pytest.mark.usefixtures("quickly_compiled")

LORA = LoraConfig(rank=2, alpha=4, targets=("attention", "down_proj"))
BATCH = pack_rows([PackedRow((), [Group((7, 8, 9, 10), [(11, 12, 13)])])], TargetShape(1, 1, 3), width=16)
HOW = [Quantization(kind=kind, tile_size=32) for kind in ("nf4", "int8", "int4")]
KINDS = pytest.mark.parametrize("how", HOW, ids=lambda how: how.kind)


def adapted(model: Decoder, how: Quantization | None) -> tuple[Frozen, Weights]:
    attach_lora(model, LORA, seed=1, quantization=how)
    frozen, adapter = split(model)
    keys = jax.random.split(jax.random.key(3), len(adapter))
    return frozen, {
        name: value + 0.05 * jax.random.normal(key, value.shape)
        for key, (name, value) in zip(keys, adapter.items(), strict=True)
    }


def rounded(how: Quantization) -> Decoder:
    """The tiny model with the weights that its quantised kernels stand for, in full precision."""
    model = load_decoder(TINY)
    blocks = model.blocks
    layers = [blocks.attention.q_proj, blocks.attention.k_proj, blocks.attention.v_proj, blocks.attention.o_proj]
    for layer in [*layers, blocks.mlp.gate_proj, blocks.mlp.up_proj, blocks.mlp.down_proj]:
        stored = qwix.quantize(layer.kernel[...], how.kind, channelwise_axes=(0, 2), tiled_axes={1: how.tile_size})
        layer.kernel.set_value(qwix.dequantize(stored))
    return model


def score(frozen: Frozen, adapter: Weights) -> tuple[Float[Array, ""], Weights]:
    def total(adapter: Weights, base: Cells) -> Float[Array, ""]:
        return score_targets(bind(frozen.graph, adapter, base), BATCH).sum()

    return jax.jit(jax.value_and_grad(total))(adapter, frozen.base)


@KINDS
def test_it_computes_as_the_weights_do_that_it_stands_for(how: Quantization) -> None:
    frozen, adapter = adapted(load_decoder(TINY), how)
    plain, same = adapted(rounded(how), None)
    assert all(np.array_equal(adapter[name], same[name]) for name in same)
    value, gradient = score(frozen, adapter)
    expected, expected_gradient = score(plain, adapter)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name, part in gradient.items():
        assert part.any(), name
        np.testing.assert_allclose(part, expected_gradient[name], rtol=1e-4, atol=1e-5)


@KINDS
def test_all_linear_layers_are_stored_in_few_bits_and_nothing_else_is(how: Quantization) -> None:
    frozen, _ = adapted(load_decoder(TINY), how)
    dtype = {"nf4": jnp.uint4, "int8": jnp.int8, "int4": jnp.int4}[how.kind]
    stored = {".".join(map(str, path)): leaf.get_value() for path, leaf in frozen.base.flat_state()}
    few_bits = {name.removesuffix(".array.qvalue") for name, value in stored.items() if value.dtype == dtype}
    assert few_bits == {
        f"blocks.{name}_proj.kernel"
        for name in ("attention.q", "attention.k", "attention.v", "attention.o", "mlp.gate", "mlp.up", "mlp.down")
    }
    assert {value.dtype for name, value in stored.items() if not name.endswith("qvalue")} == {jnp.dtype(jnp.float32)}


def test_no_kernel_is_kept_in_full_from_forward_to_backward_pass() -> None:
    def program(how: Quantization | None) -> str:
        frozen, adapter = adapted(load_decoder(TINY), how)

        def total(adapter: Weights, base: Cells) -> Float[Array, ""]:
            return score_targets(bind(frozen.graph, adapter, base), BATCH).sum()

        return str(jax.make_jaxpr(jax.grad(total))(adapter, frozen.base))

    every_layers_down_proj = "f32[2,128,64]"
    assert every_layers_down_proj in program(None)
    assert every_layers_down_proj not in program(HOW[0])
