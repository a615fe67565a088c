"""Gemma 2, and the text part of Gemma 3."""

from dataclasses import replace

from stages.engine.models.architecture import Architecture, RopeSettings, Window
from stages.engine.models.families.family import (
    ENDS,
    MLP,
    PRE_AND_POST_NORMS,
    QK_NORM,
    Family,
    GgufFacts,
    HfValue,
    attention,
    plus_one,
)
from stages.engine.models.families.fields import Fields
from stages.engine.models.families.sizes import (
    DEFAULT_THETA,
    no_rope_factors,
    rope_from_hf,
    scaling_from_hf,
    sizes_from_gguf,
    sizes_from_hf,
    sizes_to_hf,
)

GEMMA2_PERIOD, GEMMA3_PERIOD = 2, 6
NEAR, FAR = "sliding_attention", "full_attention"
SCALED_BY_WIDTH = {46, 62}
"""Layers of the 27B models: their scores are scaled by the width of a head's share of the stream."""

GEMMA3_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
    "query_pre_attn_scalar": 256,
}
"""What published files leave out where a model has these."""


def _complete(arch: Architecture) -> Architecture:
    return replace(
        arch, activation="gelu_tanh", norm_offset=1.0, post_norms=True, embedding_scale=float(arch.width) ** 0.5
    )


def _base_from_hf(config: Fields) -> Architecture:
    for name in ("hidden_act", "hidden_activation"):
        config.refuse(name, but="gelu_pytorch_tanh")
    config.refuse("use_bidirectional_attention", but=False)
    arch = _complete(sizes_from_hf(config, tied=True))
    return replace(arch, query_scale=config.number("query_pre_attn_scalar", float(arch.head_size)) ** -0.5)


def _base_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    no_rope_factors(facts)
    arch = _complete(sizes_from_gguf(metadata, facts))
    share = arch.width // arch.num_heads if arch.num_layers in SCALED_BY_WIDTH else arch.head_size
    return replace(arch, query_scale=float(share) ** -0.5)


def _base_to_hf(arch: Architecture) -> dict[str, HfValue]:
    assert arch.window is not None
    assert arch.query_scale is not None
    scalar = round(arch.query_scale**-2, 6)
    return {
        **sizes_to_hf(arch),
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": int(scalar) if scalar.is_integer() else scalar,
        "sliding_window": arch.window.size,
        "layer_types": _layer_types(arch.num_layers, arch.window.period),
    }


def _layer_types(num_layers: int, period: int) -> list[str]:
    return [NEAR if layer % period else FAR for layer in range(1, num_layers + 1)]


def _check_layers(config: Fields, num_layers: int, period: int) -> None:
    """The pattern is the family's; a file that lists its layers may not say otherwise."""
    config.refuse("sliding_window_pattern", but=period)
    if config.has("layer_types") and config.items("layer_types") != _layer_types(num_layers, period):
        raise ValueError(f"layer_types is not supported where not every {period}th layer is the one that sees all")


def _gemma2_from_hf(config: Fields) -> Architecture:
    arch = _base_from_hf(config)
    _check_layers(config, arch.num_layers, GEMMA2_PERIOD)
    return replace(
        arch,
        window=Window(config.size("sliding_window"), GEMMA2_PERIOD),
        attention_soft_cap=config.number("attn_logit_softcapping") if config.has("attn_logit_softcapping") else None,
        final_soft_cap=config.number("final_logit_softcapping") if config.has("final_logit_softcapping") else None,
    )


def _gemma2_to_hf(arch: Architecture) -> dict[str, HfValue]:
    caps: dict[str, HfValue] = {
        "attn_logit_softcapping": arch.attention_soft_cap,
        "final_logit_softcapping": arch.final_soft_cap,
    }
    return {**_base_to_hf(arch), **caps}


def _gemma2_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    return replace(
        _base_from_gguf(metadata, facts),
        window=Window(metadata.size("attention.sliding_window"), GEMMA2_PERIOD),
        attention_soft_cap=metadata.number("attn_logit_softcapping"),
        final_soft_cap=metadata.number("final_logit_softcapping"),
    )


def _gemma3_from_hf(config: Fields) -> Architecture:
    config = config.over(GEMMA3_DEFAULTS)
    arch = _base_from_hf(config)
    _check_layers(config, arch.num_layers, GEMMA3_PERIOD)
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        config.refuse(cap)
    both = config.section("rope_parameters")
    if both.has(FAR):
        near, far = both.section(NEAR), both.section(FAR)
        near_theta = near.number("rope_theta")
        rope = RopeSettings(far.number("rope_theta"), scaling_from_hf(far))
    else:
        near_theta, rope = config.number("rope_local_base_freq", DEFAULT_THETA), rope_from_hf(config)
    window = Window(config.size("sliding_window"), GEMMA3_PERIOD, RopeSettings(near_theta))
    return replace(arch, qk_norm=True, rope=rope, window=window)


def _gemma3_to_hf(arch: Architecture) -> dict[str, HfValue]:
    assert arch.window is not None
    assert arch.window.rope is not None
    return {**_base_to_hf(arch), "rope_local_base_freq": arch.window.rope.theta}


def _gemma3_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    near = RopeSettings(metadata.number("rope.freq_base_swa", DEFAULT_THETA))
    window = Window(metadata.size("attention.sliding_window"), GEMMA3_PERIOD, near)
    return replace(_base_from_gguf(metadata, facts), qk_norm=True, window=window)


GEMMA2 = Family(
    model_type="gemma2",
    hf_class="Gemma2ForCausalLM",
    hf_reward_class="Gemma2ForSequenceClassification",
    gguf_name="gemma2",
    weights=plus_one((*PRE_AND_POST_NORMS, *attention(), *MLP, *ENDS)),
    from_hf=_gemma2_from_hf,
    to_hf=_gemma2_to_hf,
    from_gguf=_gemma2_from_gguf,
)
GEMMA3 = Family(
    model_type="gemma3_text",
    hf_class="Gemma3ForCausalLM",
    hf_reward_class="Gemma3TextForSequenceClassification",
    gguf_name="gemma3",
    weights=plus_one((*PRE_AND_POST_NORMS, *attention(), *QK_NORM, *MLP, *ENDS)),
    from_hf=_gemma3_from_hf,
    to_hf=_gemma3_to_hf,
    from_gguf=_gemma3_from_gguf,
)
