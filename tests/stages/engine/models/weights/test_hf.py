"""Folders in the layout of Hugging Face: which files count, how they are named, and what is wrong with them."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from stage_trial import TINY

from stages.engine.models.transformer import Decoder
from stages.engine.models.weights.hf import open_hf
from stages.engine.models.weights.load import load_decoder
from stages.errors import UserError

Tensors = dict[str, np.ndarray]
UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny model, without its weights."""
    copy = shutil.copytree(TINY, tmp_path / "tiny", copy_function=shutil.copy)
    (copy / "model.safetensors").unlink()
    return copy


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return load_file(TINY / "model.safetensors")


def write_shards(folder: Path, tensors: Tensors, num_shards: int, *, index: bool = True) -> list[Path]:
    names, places = sorted(tensors), dict[str, str]()
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::num_shards]}
        save_file(part, folder / file)
        places |= dict.fromkeys(part, file)
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return sorted(folder.glob("*.safetensors"))


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def embedding(model: Decoder) -> np.ndarray:
    return np.asarray(model.embed.embedding[...])


def assert_tiny(model: Decoder) -> None:
    for one, other in zip(nnx.state(model).flat_state(), nnx.state(load_decoder(TINY)).flat_state(), strict=True):
        np.testing.assert_array_equal(one[1].get_value(), other[1].get_value())


def test_shards_are_read_with_an_index_and_without(folder: Path, tensors: Tensors) -> None:
    for index in (True, False):
        write_shards(folder, tensors, 3, index=index)
        assert_tiny(load_decoder(folder))


def test_files_that_the_index_does_not_name_do_not_count(folder: Path, tensors: Tensors) -> None:
    write_shards(folder, tensors, 2)
    save_file({"tok_embeddings.weight": np.ones((3, 3), np.float32)}, folder / "consolidated.safetensors")
    assert_tiny(load_decoder(folder))


def test_every_shard_that_is_not_there_or_cut_off_is_named(folder: Path, tensors: Tensors) -> None:
    first, second, third = write_shards(folder, tensors, 3)
    first.unlink()
    last = sorted(tensors)[1::3][-1]
    second.write_bytes(second.read_bytes()[:-8])
    third.write_bytes(b"")
    with pytest.raises(UserError) as raised:
        open_hf(folder)
    message = str(raised.value)
    assert f"{folder / 'model.safetensors.index.json'} names {first.name}, which is not there" in message
    assert f"{second}: not a readable safetensors file" in message
    assert f"tensor {last} ends after the file, which is cut off" in message
    assert f"{third}: not a readable safetensors file" in message


def test_a_tensor_in_two_shards_is_refused_with_both(folder: Path, tensors: Tensors) -> None:
    save_file(tensors, folder / "a.safetensors")
    save_file({UP: tensors[UP]}, folder / "b.safetensors")
    with pytest.raises(UserError, match=f"{UP} is stored more than once, in a.safetensors and b.safetensors"):
        load_decoder(folder)


def test_all_weights_of_other_types_are_named(folder: Path, tensors: Tensors) -> None:
    changed = tensors | {
        UP: tensors[UP].astype(ml_dtypes.float8_e4m3fn),
        "model.norm.weight": tensors["model.norm.weight"].astype(np.int8),
    }
    save_file(changed, folder / "model.safetensors")
    with pytest.raises(UserError) as raised:
        load_decoder(folder)
    assert f"{UP} is of type F8_E4M3; supported are F64, F32, F16, BF16" in str(raised.value)
    assert "model.norm.weight is of type I8" in str(raised.value)


def test_all_tensors_with_values_that_are_no_numbers_are_named(folder: Path, tensors: Tensors) -> None:
    changed = {name: value.copy() for name, value in tensors.items()}
    changed[UP][3, 4], changed["lm_head.weight"][258, 0], changed["model.norm.weight"][1] = np.nan, -np.inf, 3e38
    save_file(changed, folder / "model.safetensors")
    with pytest.raises(UserError) as raised:
        load_decoder(folder)
    assert str(raised.value) == f"{folder}: NaN or infinite values in {UP}, lm_head.weight"


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_other_floats_are_read_as_what_they_are(folder: Path, tensors: Tensors, dtype: type) -> None:
    rounded = {name: value.astype(dtype) for name, value in tensors.items()}
    save_file(rounded, folder / "model.safetensors")
    expected = rounded["model.embed_tokens.weight"].astype(np.float32)
    np.testing.assert_array_equal(embedding(load_decoder(folder)), expected)


@pytest.mark.parametrize("old", [True, False], ids=["older names", "newer names"])
def test_the_text_part_of_a_gemma_3_with_images_is_a_text_model(folder: Path, old: bool) -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 40, "sliding_window": 8}
    random = np.random.Generator(np.random.Philox(1))
    text = {name: random.normal(size=shape).astype(np.float32) for name, shape in gemma_shapes().items()}
    write_config(folder, {"model_type": "gemma3_text", **sizes})
    save_file(text, folder / "model.safetensors")
    plain = load_decoder(folder)

    write_config(folder, {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **sizes}})
    prefix = "language_model." if old else "model.language_model."
    inner = "" if old else "model."
    renamed = {prefix + name.removeprefix(inner): value for name, value in text.items()}
    image = {f"{inner}{part}.weight": np.ones(3, np.float32) for part in ("vision_tower.a", "multi_modal_projector.b")}
    save_file(renamed | image, folder / "model.safetensors")
    found = load_decoder(folder)
    assert found.arch == plain.arch
    assert open_hf(folder).text_part
    for one, other in zip(nnx.state(found).flat_state(), nnx.state(plain).flat_state(), strict=True):
        np.testing.assert_array_equal(one[1].get_value(), other[1].get_value())


def gemma_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (40, 16), "model.norm.weight": (16,)}
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    matrices = {"self_attn.q": (16, 16), "self_attn.k": (8, 16), "self_attn.v": (8, 16), "self_attn.o": (16, 16)}
    matrices |= {"mlp.gate": (24, 16), "mlp.up": (24, 16), "mlp.down": (16, 24)}
    for layer in range(2):
        start = f"model.layers.{layer}"
        shapes |= {f"{start}.{name}_layernorm.weight": (16,) for name in norms}
        shapes |= {f"{start}.self_attn.{name}_norm.weight": (8,) for name in "qk"}
        shapes |= {f"{start}.{name}_proj.weight": shape for name, shape in matrices.items()}
    return shapes


def test_quantised_folders_are_refused_in_words(folder: Path, tensors: Tensors) -> None:
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    write_config(folder, config | {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    with pytest.raises(UserError, match="weights are quantised by gptq"):
        load_decoder(folder)
    write_config(folder, {"model_type": "gemma3", "text_config": {}, "quantization_config": {"quant_method": "awq"}})
    with pytest.raises(UserError, match="weights are quantised by awq"):
        load_decoder(folder)


def test_an_index_that_is_not_understood_is_refused(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')
    with pytest.raises(UserError, match="weight_map is missing, or no object of file names by tensor"):
        load_decoder(folder)


@pytest.mark.parametrize("name", ["../other.safetensors", "sub/other.safetensors", "/other.safetensors"])
def test_an_index_that_names_files_elsewhere_is_refused(folder: Path, name: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"norm": name}}))
    with pytest.raises(UserError, match=f"weight_map names {name}; expected files beside it"):
        open_hf(folder)
