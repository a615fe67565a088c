"""Adapters: where they go, what they change, and their file."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from fresh_adapter import attach_lora
from jaxtyping import Array, Float
from pydantic import ValidationError
from stage_trial import TINY

from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.config import LoraConfig
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Weights, adapted_decoder, bind, load_adapter, save_adapter, split
from stages.engine.models.source import LoadedModel
from stages.engine.models.transformer import Cells
from stages.engine.models.weights.load import load_decoder
from stages.errors import UserError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

LORA = LoraConfig(rank=3, alpha=6)
BATCH = pack_rows([PackedRow((), [Group((7, 8, 9, 10), [(11, 12, 13)])])], TargetShape(1, 1, 3), width=16)


def logprobs(model: LoadedModel, adapter: Weights) -> Float[Array, "B R"]:
    return _logprobs(adapter, model.frozen.base, model)


def _logprobs(adapter: Weights, base: Cells, model: LoadedModel) -> Float[Array, "B R"]:
    return jax.jit(lambda adapter, base: score_targets(bind(model.frozen.graph, adapter, base), BATCH))(adapter, base)


def adapter_of(config: LoraConfig) -> Weights:
    model = load_decoder(TINY)
    attach_lora(model, config, seed=0)
    return split(model)[1]


def test_a_fresh_adapter_leaves_every_bit_of_the_output_alone(tiny: LoadedModel) -> None:
    frozen, nothing = split(load_decoder(TINY))
    assert nothing == {}
    bare = jax.jit(lambda base: score_targets(bind(frozen.graph, {}, base), BATCH))(frozen.base)
    np.testing.assert_array_equal(logprobs(tiny, tiny.trained), bare)


def test_an_adapter_adds_its_scaled_product_to_the_weight(tiny: LoadedModel, moved: Weights) -> None:
    merged = jax.tree.map(lambda x: x, tiny.frozen.base)
    for path, leaf in merged.flat_state():
        name = ".".join(map(str, path))
        if f"{name}_lora_a" in moved:
            product = moved[f"{name}_lora_a"] @ moved[f"{name}_lora_b"]
            leaf.set_value(leaf.get_value() + LORA.alpha / LORA.rank * product)
    nothing = jax.tree.map(jnp.zeros_like, moved)
    changed = logprobs(tiny, moved)
    np.testing.assert_allclose(changed, _logprobs(nothing, merged, tiny), atol=1e-5)
    assert np.abs(changed - logprobs(tiny, tiny.trained)).max() > 0.1


def test_only_the_targets_get_an_adapter_in_every_layer() -> None:
    adapter = adapter_of(LoraConfig(rank=2, alpha=2, targets=("q_proj", "down_proj")))
    assert {name: value.shape for name, value in adapter.items()} == {
        "blocks.attention.q_proj.kernel_lora_a": (2, 64, 2),
        "blocks.attention.q_proj.kernel_lora_b": (2, 2, 64),
        "blocks.mlp.down_proj.kernel_lora_a": (2, 128, 2),
        "blocks.mlp.down_proj.kernel_lora_b": (2, 2, 64),
    }


def test_a_fresh_adapter_is_random_in_a_zero_in_b_and_differs_by_layer_and_key(tiny: LoadedModel) -> None:
    for name, value in tiny.trained.items():
        if name.endswith("lora_b"):
            assert not value.any()
        else:
            bound = (6 / value.shape[1]) ** 0.5
            assert 0.9 * bound < jnp.abs(value).max() <= bound
            assert not np.array_equal(value[0], value[1])
    q, k = (tiny.trained[f"blocks.attention.{name}_proj.kernel_lora_a"] for name in "qk")
    assert not np.array_equal(q, k)
    other = adapter_of(LORA)["blocks.attention.q_proj.kernel_lora_a"]
    assert not np.array_equal(q, other)


def test_two_adapters_share_one_base_without_a_trace(tiny: LoadedModel, moved: Weights) -> None:
    first = logprobs(tiny, tiny.trained)
    second = logprobs(tiny, moved)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(logprobs(tiny, tiny.trained), first)


def test_a_saved_adapter_is_loaded_bit_for_bit_and_equal_weights_are_equal_files(
    tmp_path: Path, moved: Weights
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    descriptor = save_adapter(one, moved, LORA)
    assert (descriptor.rank, descriptor.alpha, descriptor.targets) == (3, 6.0, LORA.targets)
    assert save_adapter(other, dict(reversed(moved.items())), LORA) == descriptor
    assert (one / descriptor.file).read_bytes() == (other / descriptor.file).read_bytes()
    loaded = load_adapter(one / descriptor.file, jax.tree.map(jnp.zeros_like, moved))
    assert loaded.keys() == moved.keys()
    assert all(np.array_equal(loaded[name], moved[name]) for name in moved)


def test_an_adapter_of_another_rank_or_other_targets_is_refused_with_every_name(tmp_path: Path, moved: Weights) -> None:
    descriptor = save_adapter(tmp_path, moved, LORA)
    wanted = adapter_of(LoraConfig(rank=2, alpha=2, targets=("q_proj",)))
    with pytest.raises(UserError) as raised:
        load_adapter(tmp_path / descriptor.file, wanted)
    message = str(raised.value)
    assert "blocks.attention.q_proj.kernel_lora_a has shape (2, 64, 3), expected (2, 64, 2)" in message
    assert message.count("is not part of this model") == 12
    with pytest.raises(UserError, match=r"blocks\.norm\.kernel_lora_b is missing"):
        load_adapter(tmp_path / descriptor.file, moved | {"blocks.norm.kernel_lora_b": jnp.zeros(1)})


def test_an_adapter_with_values_that_are_no_numbers_is_refused(tmp_path: Path, moved: Weights) -> None:
    name = "blocks.mlp.up_proj.kernel_lora_b"
    descriptor = save_adapter(tmp_path, moved | {name: moved[name].at[1, 0, 0].set(jnp.nan)}, LORA)
    with pytest.raises(UserError, match=r"adapter\.safetensors: blocks\.mlp\.up_proj\.kernel_lora_b holds NaN or inf"):
        load_adapter(tmp_path / descriptor.file, moved)


def test_a_file_that_holds_no_tensors_is_refused(tmp_path: Path, moved: Weights) -> None:
    path = tmp_path / "adapter.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(UserError, match=r"adapter\.safetensors"):
        load_adapter(path, moved)


def test_rows_in_another_order_give_the_same_bits_in_that_order(tiny: LoadedModel, moved: Weights) -> None:
    packed = [PackedRow((), [Group(range(3, 3 + n), [(5, 6 + n)])]) for n in range(1, 9)]
    order = [3, 0, 6, 7, 5, 1, 2, 4]
    score = jax.jit(lambda adapter, base, batch: score_targets(bind(tiny.frozen.graph, adapter, base), Batch(*batch)))

    def scored(rows: list[PackedRow]) -> np.ndarray:
        return np.asarray(score(moved, tiny.frozen.base, pack_rows(rows, TargetShape(1, 1, 2), width=16)))

    np.testing.assert_array_equal(scored([packed[row] for row in order]), scored(packed)[order])


def test_a_group_stands_for_the_layers_of_its_name() -> None:
    def targets(*names: str) -> tuple[str, ...]:
        return LoraConfig.model_validate_json(json.dumps({"rank": 1, "alpha": 1, "targets": names})).targets

    assert targets("attention") == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert targets("down_proj", "mlp") == ("down_proj", "gate_proj", "up_proj")
    assert targets("all") == LORA.targets
    with pytest.raises(ValidationError, match=r"'q_proj', 'k_proj'.*'attention', 'mlp' or 'all'"):
        targets("q")


def test_a_target_that_the_model_lacks_is_refused_with_what_there_is() -> None:
    with pytest.raises(UserError, match=r"targets: router .* there are q_proj, .*, down_proj"):
        adapter_of(LoraConfig(rank=1, alpha=1, targets=("q_proj", "router")))


def test_a_rank_stabilised_adapter_counts_by_the_root_of_its_rank(tiny: LoadedModel, moved: Weights) -> None:
    model = load_decoder(TINY)
    stabilised = LORA.model_copy(update={"scaling": "rank_stabilized", "alpha": LORA.scale * LORA.rank**0.5})
    attach_lora(model, stabilised, seed=0)
    frozen = tiny.frozen._replace(graph=split(model)[0].graph)
    np.testing.assert_allclose(logprobs(replace(tiny, frozen=frozen), moved), logprobs(tiny, moved), rtol=1e-5)


def test_a_decoder_of_weights_by_name_is_the_one_that_they_were_taken_from(tiny: LoadedModel, moved: Weights) -> None:
    weights = split(load_decoder(TINY), nnx.Param)[1]
    model = adapted_decoder(load_decoder(TINY).arch, weights, LORA, seed=1)
    frozen, adapter = split(model)
    assert all(np.array_equal(adapter[name], tiny.trained[name]) for name in tiny.trained)
    np.testing.assert_array_equal(logprobs(replace(tiny, frozen=frozen), moved), logprobs(tiny, moved))


def test_all_weights_may_be_trained_and_none_is_then_frozen() -> None:
    frozen, weights = split(load_decoder(TINY), nnx.Param)
    assert not jax.tree.leaves(frozen.base)
    gradient = jax.jit(jax.grad(lambda weights: score_targets(bind(frozen.graph, weights, frozen.base), BATCH).sum()))
    assert all(part.any() for part in gradient(weights).values())
