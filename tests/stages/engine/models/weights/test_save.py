"""Models of every family, written and read again: not a bit of a tensor changes."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import DTypeLike
from safetensors import safe_open
from stage_trial import TINY

from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.architecture import Architecture, Experts, Llama3Scaling, RopeSettings, Window
from stages.engine.models.families.catalog import FAMILIES
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.weights.abstract import weight_shapes
from stages.engine.models.weights.load import open_checkpoint, read_weights
from stages.engine.models.weights.save import save_hf

SMALL = Architecture(
    num_layers=2,
    width=12,
    hidden=20,
    num_heads=4,
    num_kv_heads=2,
    head_size=6,
    vocab_size=31,
    rope=RopeSettings(1e5),
    norm_epsilon=1e-6,
    tied_embeddings=False,
    max_positions=64,
)
QWEN3 = replace(SMALL, qk_norm=True)
GEMMA = replace(
    SMALL,
    tied_embeddings=True,
    activation="gelu_tanh",
    norm_offset=1.0,
    post_norms=True,
    embedding_scale=12**0.5,
    query_scale=8**-0.5,
)
ARCHS = {
    "llama": replace(SMALL, tied_embeddings=True, rope=RopeSettings(1e4, Llama3Scaling(8.0, 1.0, 4.0, 32))),
    "qwen2": replace(SMALL, qkv_bias=True),
    "qwen3": QWEN3,
    "qwen3_moe": replace(QWEN3, experts=Experts(count=3, per_token=2, hidden=10, normalized=True)),
    "gemma2": replace(GEMMA, window=Window(16, 2), attention_soft_cap=50.0, final_soft_cap=30.0),
    "gemma3_text": replace(GEMMA, qk_norm=True, window=Window(16, 6, RopeSettings(1e4))),
}
EVERY_FAMILY = pytest.mark.parametrize("kind", FAMILIES)
TOKENIZER = load_tokenizer(TINY)
RANDOM = np.random.Generator(np.random.Philox(3))


def save(
    folder: Path, kind: str, weights: dict[str, np.ndarray], dtype: DTypeLike, max_shard_bytes: int = 10**9
) -> Path:
    folder.mkdir()
    save_hf(
        folder, FAMILIES[kind], ARCHS[kind], weights.items(), TOKENIZER, dtype=dtype, max_shard_bytes=max_shard_bytes
    )
    return folder


def draw(kind: str, dtype: DTypeLike = np.float32) -> dict[str, np.ndarray]:
    return {path: RANDOM.normal(size=shape).astype(dtype) for path, shape in weight_shapes(ARCHS[kind]).items()}


def stored(folder: Path) -> dict[str, bytes]:
    """Bytes of every tensor by the reader of the safetensors project."""
    found = dict[str, bytes]()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            assert file.metadata() == {"format": "pt"}
            found |= {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
    return found


@EVERY_FAMILY
def test_a_models_config_says_what_it_is(tmp_path: Path, kind: str) -> None:
    checkpoint = open_checkpoint(save(tmp_path / "saved", kind, draw(kind), np.float32))
    assert (checkpoint.family, checkpoint.arch) == (FAMILIES[kind], ARCHS[kind])


@EVERY_FAMILY
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def test_what_is_read_and_written_again_is_the_same_bit_for_bit(tmp_path: Path, kind: str, dtype: DTypeLike) -> None:
    first = save(tmp_path / "first", kind, draw(kind), dtype)
    for name, kept in (("in float32", np.float32), ("as stored", dtype)):
        weights = read_weights(open_checkpoint(first), dtype=kept)
        again = save(tmp_path / name, kind, {path: np.asarray(value) for path, value in weights.items()}, dtype)
        assert stored(again) == stored(first)
        assert (again / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()


@EVERY_FAMILY
def test_a_model_in_shards_has_the_same_tensors(tmp_path: Path, kind: str) -> None:
    weights = draw(kind)
    whole = save(tmp_path / "whole", kind, weights, np.float32)
    shards = save(tmp_path / "shards", kind, dict(reversed(weights.items())), np.float32, max_shard_bytes=4000)
    assert stored(shards) == stored(whole)
    files = sorted(path.name for path in shards.glob("*.safetensors"))
    assert files == [f"model-{at:05d}-of-{len(files):05d}.safetensors" for at in range(1, len(files) + 1)]
    assert len(files) > 2
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(map(len, stored(whole).values()))
    assert set(index["weight_map"]) == stored(whole).keys()
    found = read_weights(open_checkpoint(shards))
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[path], weights[path]) for path in weights)


def test_half_precision_is_rounded_to(tmp_path: Path) -> None:
    weights = draw("qwen3")
    found = read_weights(open_checkpoint(save(tmp_path / "saved", "qwen3", weights, np.float16)))
    assert all(np.array_equal(found[path], weights[path].astype(np.float16).astype(np.float32)) for path in weights)


def test_a_folder_is_whole_with_tokenizer_and_ends(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", "llama", draw("llama"), jnp.bfloat16)
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["model_type"]) == (["LlamaForCausalLM"], "llama")
    assert config["dtype"] == config["torch_dtype"] == "bfloat16"
    assert config["eos_token_id"] == TOKENIZER.eos_id
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_ids, tokenizer.chat_template) == (TOKENIZER.eos_ids, TOKENIZER.chat_template)


@EVERY_FAMILY
def test_a_reward_model_has_a_head_in_place_of_its_output_projection(tmp_path: Path, kind: str) -> None:
    family, arch = FAMILIES[kind], ARCHS[kind]
    weights = {**draw(kind), REWARD_HEAD.path: RANDOM.normal(size=(arch.width, 1)).astype(np.float32)}
    save_hf(tmp_path, family, arch, weights.items(), TOKENIZER, reward=True)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [family.hf_reward_class]
    assert list(config["id2label"]) == ["0"]
    assert stored(tmp_path)[REWARD_HEAD.hf] == weights[REWARD_HEAD.path].tobytes()
    assert "lm_head.weight" not in stored(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.head == (1, arch.width)
    found = read_weights(checkpoint)
    assert found.keys() == weights.keys() - {REWARD_HEAD.path, "lm_head.kernel"}
    assert all(np.array_equal(found[path], weights[path]) for path in found)


@pytest.mark.parametrize(("pad_token", "written"), [(TOKENIZER.pad_token, 0), (TOKENIZER.eos_token, None), ("", None)])
def test_padding_of_a_reward_model_hides_no_end_token(tmp_path: Path, pad_token: str, written: int | None) -> None:
    weights = {**draw("llama"), REWARD_HEAD.path: np.ones((SMALL.width, 1), np.float32)}
    tokenizer = replace(TOKENIZER, pad_token=pad_token)
    save_hf(tmp_path, FAMILIES["llama"], ARCHS["llama"], weights.items(), tokenizer, reward=True)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == written


def test_a_weight_that_never_comes_is_told(tmp_path: Path) -> None:
    weights = draw("qwen3")
    del weights["blocks.mlp.up_proj.kernel"]
    with pytest.raises(
        AssertionError, match=r"never written: model\.layers\.0\.mlp\.up_proj\.weight, model\.layers\.1"
    ):
        save(tmp_path / "saved", "qwen3", weights, np.float32)
