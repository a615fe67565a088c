"""A model with an adapter and the one that it is merged into say the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from fresh_adapter import attach_lora
from jaxtyping import Array, Float
from stage_trial import TINY

from stages.contract import Quantization
from stages.engine.data.batching import Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.config import LoraConfig
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind, split
from stages.engine.models.merge import merged_weights
from stages.engine.models.source import LoadedModel
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.load import load_decoder

pytestmark = pytest.mark.usefixtures("quickly_compiled")

LORA = LoraConfig(rank=3, alpha=6)
BATCH = pack_rows([PackedRow((), [Group((7, 8, 9, 10), [(11, 12, 13)])])], TargetShape(1, 1, 3), width=16)


def scored(frozen: Frozen, weights: Weights) -> Float[Array, "B R"]:
    def score(weights: Weights, base: Cells) -> Float[Array, "B R"]:
        return score_targets(bind(frozen.graph, weights, base), BATCH)

    return jax.jit(score)(weights, frozen.base)


def test_the_merged_model_scores_as_base_and_adapter_do(tiny: LoadedModel, moved: Weights) -> None:
    bare, plain = split(load_decoder(TINY), nnx.Param)
    merged = dict(merged_weights(tiny.frozen, moved, LORA))
    assert merged.keys() == plain.keys()
    changed = {name for name in plain if not np.array_equal(merged[name], plain[name])}
    assert changed == {name.rpartition("_lora_")[0] for name in moved}
    np.testing.assert_allclose(scored(bare, merged), scored(tiny.frozen, moved), atol=1e-5)


def test_a_kernel_is_rounded_once_after_it_is_added_up(tiny: LoadedModel, moved: Weights) -> None:
    half = tiny.frozen._replace(base=jax.tree.map(lambda x: x.astype(jnp.bfloat16), tiny.frozen.base))
    merged = dict(merged_weights(half, moved, LORA))
    for name in {name.rpartition("_lora_")[0] for name in moved}:
        kernel = np.asarray(half_of(tiny, name), np.float64)
        a, b = (np.asarray(moved[f"{name}_lora_{part}"], np.float64) for part in "ab")
        exact = kernel + LORA.scale * a @ b
        assert merged[name].dtype == jnp.bfloat16
        # Half of the last of its 8 bits, and what float32 loses before that.
        error = np.abs(np.asarray(merged[name], np.float64) - exact)
        assert (error <= np.abs(exact) * 2.0**-8 + 1e-6).all()


def half_of(tiny: LoadedModel, name: str) -> Float[Array, "L D F"]:
    values = {".".join(map(str, path)): leaf.get_value() for path, leaf in tiny.frozen.base.flat_state()}
    return values[name].astype(jnp.bfloat16)


def test_the_merge_is_exact_to_the_rounding_of_its_float32(tiny: LoadedModel, moved: Weights) -> None:
    stabilised = LORA.model_copy(update={"scaling": "rank_stabilized"})
    name = "blocks.mlp.down_proj.kernel"
    value = dict(merged_weights(tiny.frozen, moved, stabilised))[name]
    base = split(load_decoder(TINY), nnx.Param)[1][name]
    a, b = (np.asarray(moved[f"{name}_lora_{part}"], np.float64) for part in "ab")
    np.testing.assert_allclose(value, np.asarray(base, np.float64) + 6 / 3**0.5 * a @ b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["nf4", "int8", "int4"])
def test_a_quantised_base_is_merged_into_what_it_stands_for(kind: str, moved: Weights) -> None:
    how = Quantization.model_validate({"kind": kind, "tile_size": 32})
    model = load_decoder(TINY)
    attach_lora(model, LORA, seed=1, quantization=how)
    frozen, _ = split(model)
    bare, plain = split(load_decoder(TINY), nnx.Param)
    merged = dict(merged_weights(frozen, moved, LORA, how))
    assert {name: (value.shape, value.dtype) for name, value in merged.items()} == {
        name: (value.shape, value.dtype) for name, value in plain.items()
    }
    np.testing.assert_allclose(scored(bare, merged), scored(frozen, moved), atol=1e-5)
