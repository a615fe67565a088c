"""How each family's files say what they are, and what is refused."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from stages.engine.models.architecture import Architecture, LinearScaling, Llama3Scaling, RopeSettings, Window
from stages.engine.models.families.catalog import FAMILIES
from stages.engine.models.families.family import GgufFacts
from stages.engine.models.families.fields import Fields
from stages.engine.models.families.presets import PRESETS
from stages.engine.models.rope import frequencies
from stages.engine.models.transformer import near_layers

SIZES: Mapping[str, object] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "vocab_size": 97,
    "max_position_embeddings": 128,
}
EVEN = {"num_key_value_heads": 3}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
GGUF_LLAMA: Mapping[str, object] = {
    "llama.block_count": 16,
    "llama.embedding_length": 2048,
    "llama.feed_forward_length": 8192,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 5e5,
    "llama.context_length": 131072,
}


def from_hf(kind: str, **changes: object) -> Architecture:
    return FAMILIES[kind].from_hf(Fields({**SIZES, **changes}))


def test_what_a_file_leaves_out_is_what_its_family_means() -> None:
    assert (from_hf("llama").num_kv_heads, from_hf("llama").head_size) == (6, 8)
    assert not from_hf("llama").tied_embeddings
    assert from_hf("gemma2", sliding_window=9).tied_embeddings
    published = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    scaled = {**published, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    assert FAMILIES["gemma3_text"].from_hf(Fields(scaled)) == PRESETS["gemma-3-4b"]


def test_stretched_positions_are_read_from_old_and_new_files() -> None:
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 8192)
    assert from_hf("llama", rope_theta=5e5, rope_scaling=LLAMA3).rope == RopeSettings(5e5, scaling)
    assert from_hf("llama", rope_parameters={**LLAMA3, "rope_theta": 5e5}).rope == RopeSettings(5e5, scaling)
    assert from_hf("llama", rope_scaling={"type": "linear", "factor": 2}).rope.scaling == LinearScaling(2.0)


def test_near_and_far_layers_have_rotary_embeddings_of_their_own_in_gemma_3() -> None:
    both = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    arch = from_hf("gemma3_text", **EVEN, num_hidden_layers=7, sliding_window=5, rope_parameters=both)
    assert arch.rope == RopeSettings(1e6, LinearScaling(8.0))
    assert arch.window == Window(5, 6, RopeSettings(1e4))
    assert near_layers(arch).tolist() == [True] * 5 + [False, True]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type 'yarn' is not supported"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
        ("llama", {"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "slow frequencies turn up to 4.0 times, fast"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads is 0, expected a whole number from 1 to"),
        ("llama", {"num_key_value_heads": 4}, "6 query heads cannot share 4 key heads"),
        ("llama", {"head_dim": 15}, "a head of 15 numbers has no pairs"),
        ("llama", {"rope_theta": 0}, "rope_theta is 0, expected a number above 0"),
        ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, expected a number above 0"),
        ("llama", {"attention_bias": True}, "attention_bias True is not supported"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window True is not supported"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, r"mlp_only_layers \[1\] is not supported"),
        (
            "qwen3_moe",
            {"num_experts": 8, "num_experts_per_tok": 9, "moe_intermediate_size": 4},
            "a token goes to 9 experts of 8",
        ),
        ("gemma2", {"sliding_window": 4, "layer_types": ["full_attention"] * 4}, "not every 2th layer"),
        ("gemma3_text", {**EVEN, "sliding_window": True}, "sliding_window is True, expected a whole number"),
        ("gemma3_text", {**EVEN, "final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0 is not supported"),
    ],
)
def test_what_the_decoder_cannot_do_is_refused(kind: str, changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_hf(kind, **changes)


def test_slow_frequencies_are_divided_fast_ones_kept_and_those_between_blended() -> None:
    plain = RopeSettings(1e4)
    stretched = replace(plain, scaling=Llama3Scaling(8.0, 1.0, 4.0, 128))
    before, after = (frequencies(16, settings).astype(np.float64) for settings in (plain, stretched))
    turns = 128 * before / (2 * np.pi)
    assert (turns > 4).tolist() == [True, True, False, False, False, False, False, False]
    blend = (turns[2] - 1) / 3
    expected = [1, 1, blend + (1 - blend) / 8, *[1 / 8] * 5]
    np.testing.assert_allclose(after / before, expected, rtol=1e-5)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_stretch_of_a_gguf_file_is_found_from_its_factors(factor: float) -> None:
    stretched = RopeSettings(5e5, Llama3Scaling(factor, 1.0, 4.0, 8192))
    factors = frequencies(64, RopeSettings(5e5)) / frequencies(64, stretched)
    read = FAMILIES["llama"].from_gguf
    arch = read(Fields(GGUF_LLAMA, "llama."), GgufFacts(128256, True, factors.astype(np.float32)))
    assert arch.rope == stretched
    if factor == 32.0:
        assert arch == PRESETS["llama-3.2-1b"]
    with pytest.raises(ValueError, match="those of no published model"):
        read(Fields(GGUF_LLAMA, "llama."), GgufFacts(128256, True, 1.5 * factors))


def test_scores_of_the_largest_gemma_are_scaled_by_another_size_than_that_of_its_heads() -> None:
    metadata = {
        "gemma2.block_count": 46,
        "gemma2.embedding_length": 4608,
        "gemma2.feed_forward_length": 36864,
        "gemma2.attention.head_count": 32,
        "gemma2.attention.head_count_kv": 16,
        "gemma2.attention.key_length": 128,
        "gemma2.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma2.attention.sliding_window": 4096,
        "gemma2.attn_logit_softcapping": 50.0,
        "gemma2.final_logit_softcapping": 30.0,
        "gemma2.context_length": 8192,
    }
    arch = FAMILIES["gemma2"].from_gguf(Fields(metadata, "gemma2."), GgufFacts(256000, True, None))
    assert arch == PRESETS["gemma-2-27b"]
