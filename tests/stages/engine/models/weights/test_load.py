"""Checkpoints in both formats, whole and broken."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from stage_trial import TINY

from stages.engine.models.architecture import RopeSettings
from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.load import load_decoder
from stages.errors import UserError

WriteGguf = Callable[..., Path]
AsFloat32 = Callable[[np.ndarray], tuple[tuple[int, ...], int, bytes]]

GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GGUF_SIZES = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "llama.context_length": 512,
    "llama.vocab_size": 259,
}
EMBEDDING = {"token_embd.weight": ((1, 1), 0, bytes(4))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny model."""
    return shutil.copytree(TINY, tmp_path / "tiny", copy_function=shutil.copy)


def tensors(folder: Path = TINY) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def weights(model: Decoder) -> dict[str, np.ndarray]:
    flat = nnx.state(model).flat_state()
    return {".".join(map(str, path)): np.asarray(leaf.get_value()) for path, leaf in flat}


def assert_same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_a_folder_gives_the_models_sizes_and_its_weights_with_layers_stacked() -> None:
    model = load_decoder(TINY)
    stored, found = tensors(), weights(model)
    arch = model.arch
    assert (arch.num_layers, arch.width, arch.num_heads, arch.num_kv_heads, arch.head_size) == (2, 64, 4, 2, 16)
    assert (arch.vocab_size, arch.rope.theta, arch.norm_epsilon, arch.tied_embeddings) == (259, 1e4, 1e-5, False)
    np.testing.assert_array_equal(found["embed.embedding"], stored["model.embed_tokens.weight"])
    np.testing.assert_array_equal(found["lm_head.kernel"], stored["lm_head.weight"].T)
    for layer in range(2):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        np.testing.assert_array_equal(found["blocks.mlp.down_proj.kernel"][layer], stored[name].T)


def test_a_checkpoint_in_shards_and_in_bfloat16_is_read_whole(folder: Path) -> None:
    rounded = {name: value.astype(ml_dtypes.bfloat16) for name, value in tensors().items()}
    (folder / "model.safetensors").unlink()
    names = sorted(rounded)
    for number, part in enumerate((names[:7], names[7:]), 1):
        save_file({name: rounded[name] for name in part}, folder / f"model-{number:05d}-of-00002.safetensors")
    found = weights(load_decoder(folder))
    assert {value.dtype for value in found.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(found["lm_head.kernel"], rounded["lm_head.weight"].astype(np.float32).T)


def test_a_tied_model_has_no_projection_of_its_own(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    stored = tensors()
    for output in (stored["model.embed_tokens.weight"], None):
        kept = stored | {"lm_head.weight": output}
        save_file({name: value for name, value in kept.items() if value is not None}, folder / "model.safetensors")
        assert "lm_head.kernel" not in weights(load_decoder(folder))


def test_a_tied_model_with_another_output_projection_is_refused(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    with pytest.raises(UserError, match=r"tie_word_embeddings is true, but lm_head\.weight is not model\.embed_tokens"):
        load_decoder(folder)


def to_gguf(name: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    stem = re.sub(r"model\.layers\.(\d+)\.", "", name).removesuffix(".weight")
    layer = re.match(r"model\.layers\.(\d+)", name)
    if stem in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = 4 if "q_proj" in stem else 2
        pairs = value.reshape(heads, 2, 8, 64)
        value = np.stack([pairs[:, 0], pairs[:, 1]], axis=2).reshape(value.shape)
    return (f"blk.{layer[1]}." if layer else "") + GGUF_NAMES[stem] + ".weight", value


def test_a_gguf_file_gives_the_same_decoder_as_the_folder(write_gguf: WriteGguf, as_float32: AsFloat32) -> None:
    converted = dict(to_gguf(name, value) for name, value in tensors().items())
    path = write_gguf(GGUF_SIZES, {name: as_float32(value) for name, value in converted.items()})
    model, original = load_decoder(path), load_decoder(TINY)
    assert model.arch.num_kv_heads == 2
    assert_same(weights(model), weights(original))


def test_all_missing_tensors_are_named_at_once(folder: Path) -> None:
    missing = ["lm_head.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
    kept = {name: value for name, value in tensors().items() if name not in missing}
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(UserError) as raised:
        load_decoder(folder)
    assert str(raised.value).startswith(f"{folder}: ")
    assert all(f"{name} is missing" in str(raised.value) for name in missing)


def test_all_tensors_of_a_wrong_shape_are_named_at_once(folder: Path) -> None:
    changed = tensors()
    changed["model.norm.weight"] = np.ones(3, np.float32)
    changed["model.layers.1.self_attn.k_proj.weight"] = np.ones((32, 60), np.float32)
    save_file(changed, folder / "model.safetensors")
    with pytest.raises(UserError) as raised:
        load_decoder(folder)
    assert "model.norm.weight has shape (3,), expected (64,)" in str(raised.value)
    assert "model.layers.1.self_attn.k_proj.weight has shape (32, 60), expected (32, 64)" in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported are llama, qwen2"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type 'yarn' is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny', expected a number"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers is 'two', expected a whole number"),
    ],
)
def test_a_config_that_is_not_understood_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    change_config(folder, **changes)
    with pytest.raises(UserError, match=message):
        load_decoder(folder)


def test_newer_configs_keep_the_rotary_base_among_their_rope_parameters(folder: Path) -> None:
    change_config(folder, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert load_decoder(folder).arch.rope == RopeSettings(5e5)


def test_what_is_no_checkpoint_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UserError, match=r"model\.safetensors: not a readable safetensors file"):
        load_decoder(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json holds no object"):
        load_decoder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"expected a \.gguf file, or a folder with config\.json"):
        load_decoder(folder)


def test_a_gguf_file_of_another_family_or_without_its_sizes_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(UserError, match="GGUF architecture 'mamba' is not supported; supported are llama, qwen2"):
        load_decoder(write_gguf({"general.architecture": "mamba"}, {}))
    with pytest.raises(UserError, match=r"unusable GGUF metadata: llama\.embedding_length is missing"):
        load_decoder(write_gguf({"general.architecture": "llama"}, EMBEDDING))


def test_a_part_of_a_gguf_model_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(UserError, match="one of 3 parts of a model; join them"):
        load_decoder(write_gguf({"general.architecture": "llama", "split.count": 3}, EMBEDDING))


def test_all_gguf_tensors_of_unknown_types_are_named(write_gguf: WriteGguf, as_float32: AsFloat32) -> None:
    converted = {name: as_float32(value) for name, value in (to_gguf(*item) for item in tensors().items())}
    shape, _, content = converted["output_norm.weight"]
    converted["output_norm.weight"] = (shape, 25, content)
    shape, _, content = converted["blk.1.ffn_up.weight"]
    converted["blk.1.ffn_up.weight"] = (shape, 99, content)
    with pytest.raises(UserError) as raised:
        load_decoder(write_gguf(GGUF_SIZES, converted))
    assert "output_norm.weight is of type I16; supported are F64, F32, F16" in str(raised.value)
    assert "blk.1.ffn_up.weight is of type 99; supported are" in str(raised.value)


def test_gguf_tensors_with_values_that_are_no_numbers_are_named(write_gguf: WriteGguf, as_float32: AsFloat32) -> None:
    changed = {name: value.copy() for name, value in tensors().items()}
    changed["model.layers.1.mlp.up_proj.weight"][3, 4] = np.inf
    converted = {name: as_float32(value) for name, value in (to_gguf(*item) for item in changed.items())}
    with pytest.raises(UserError, match=r"NaN or infinite values in blk\.1\.ffn_up\.weight"):
        load_decoder(write_gguf(GGUF_SIZES, converted))


def test_a_gguf_file_with_positions_scaled_in_an_unknown_way_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(UserError, match=r"rope\.scaling\.type 'yarn' is not supported"):
        load_decoder(write_gguf({**GGUF_SIZES, "llama.rope.scaling.type": "yarn"}, EMBEDDING))


def test_tensors_that_the_family_has_no_place_for_are_refused_and_not_left_out(folder: Path) -> None:
    biases = {f"model.layers.{layer}.self_attn.q_proj.bias": np.zeros(64, np.float32) for layer in range(2)}
    save_file(tensors() | biases, folder / "model.safetensors")
    with pytest.raises(UserError) as raised:
        load_decoder(folder)
    assert all(f"{name} has no place in this family" in str(raised.value) for name in biases)


def test_a_copy_of_the_rotary_frequencies_is_left_out(folder: Path) -> None:
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    save_file(tensors() | frequencies, folder / "model.safetensors")
    assert_same(weights(load_decoder(folder)), weights(load_decoder(TINY)))
