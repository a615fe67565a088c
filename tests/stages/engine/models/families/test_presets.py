"""Published sizes: as many parameters as the published models have, and the same in their files' words and back."""

import math

import jax
import pytest
from flax import nnx

from stages.engine.models.architecture import Architecture
from stages.engine.models.families.catalog import FAMILIES
from stages.engine.models.families.family import Family
from stages.engine.models.families.fields import Fields
from stages.engine.models.families.presets import PRESETS
from stages.engine.models.transformer import Decoder

# As counted on the pages of the published models.
NUM_PARAMETERS = {
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
}


def family_of(name: str) -> Family:
    stem = name.rpartition("-")[0]
    if name.endswith(("a3b", "a22b")):
        return FAMILIES["qwen3_moe"]
    by_stem = {"qwen2.5": "qwen2", "qwen3": "qwen3", "gemma-2": "gemma2", "gemma-3": "gemma3_text"}
    return FAMILIES[by_stem.get(stem, "llama")]


def count(arch: Architecture) -> int:
    shapes = jax.tree.leaves(nnx.state(nnx.eval_shape(lambda: Decoder(arch, rngs=nnx.Rngs(0))), nnx.Param))
    return sum(math.prod(shape.shape) for shape in shapes)


@pytest.mark.parametrize("name", NUM_PARAMETERS)
def test_a_preset_has_the_parameters_of_the_published_model(name: str) -> None:
    assert count(PRESETS[name]) == NUM_PARAMETERS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_in_the_words_of_its_family_is_read_back_as_itself(name: str) -> None:
    family = family_of(name)
    assert family.from_hf(Fields(family.to_hf(PRESETS[name]))) == PRESETS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_transformers_counts_the_same_parameters_for_the_same_words(name: str) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    family = family_of(name)
    config = transformers.AutoConfig.for_model(family.model_type, **family.to_hf(PRESETS[name]))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert model.__class__.__name__ == family.hf_class
    assert sum(weight.numel() for weight in model.parameters()) == count(PRESETS[name])
