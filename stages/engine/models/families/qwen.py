"""Qwen2.5, Qwen3 and Qwen3-MoE."""

from dataclasses import replace

from stages.engine.models.architecture import Architecture, Experts
from stages.engine.models.families.family import (
    ENDS,
    EXPERTS,
    MLP,
    PRE_NORMS,
    QK_NORM,
    QKV_BIAS,
    Family,
    GgufFacts,
    HfValue,
    attention,
)
from stages.engine.models.families.fields import Fields
from stages.engine.models.families.sizes import no_rope_factors, sizes_from_gguf, sizes_from_hf, sizes_to_hf


def _from_hf(config: Fields) -> Architecture:
    config.refuse("hidden_act", but="silu")
    config.refuse("use_sliding_window", but=False)
    return sizes_from_hf(config, tied=False)


def _to_hf(arch: Architecture) -> dict[str, HfValue]:
    return {**sizes_to_hf(arch), "hidden_act": "silu", "use_sliding_window": False}


def _from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    no_rope_factors(facts)
    return sizes_from_gguf(metadata, facts)


def _qwen2_from_hf(config: Fields) -> Architecture:
    return replace(_from_hf(config), qkv_bias=True)


def _qwen2_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    return replace(_from_gguf(metadata, facts), qkv_bias=True)


def _qwen2_to_hf(arch: Architecture) -> dict[str, HfValue]:
    # The bias goes without saying in this family.
    return {name: value for name, value in _to_hf(arch).items() if name != "attention_bias"}


def _qwen3_from_hf(config: Fields) -> Architecture:
    return replace(_from_hf(config), qk_norm=True)


def _qwen3_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    return replace(_from_gguf(metadata, facts), qk_norm=True)


def _moe_from_hf(config: Fields) -> Architecture:
    config.refuse("decoder_sparse_step", but=1)
    config.refuse("mlp_only_layers", but=[])
    experts = Experts(
        count=config.size("num_experts" if config.has("num_experts") else "num_local_experts"),
        per_token=config.size("num_experts_per_tok"),
        hidden=config.size("moe_intermediate_size"),
        normalized=config.flag("norm_topk_prob", default=False),
    )
    return replace(_qwen3_from_hf(config), experts=experts)


def _moe_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    experts = Experts(
        count=metadata.size("expert_count"),
        per_token=metadata.size("expert_used_count"),
        hidden=metadata.size("expert_feed_forward_length"),
        # All published models of this family do; the format has no entry for it.
        normalized=True,
    )
    return replace(_qwen3_from_gguf(metadata, facts), experts=experts)


def _moe_to_hf(arch: Architecture) -> dict[str, HfValue]:
    assert arch.experts is not None
    return {
        **_to_hf(arch),
        "num_experts": arch.experts.count,
        "num_experts_per_tok": arch.experts.per_token,
        "moe_intermediate_size": arch.experts.hidden,
        "norm_topk_prob": arch.experts.normalized,
        "decoder_sparse_step": 1,
    }


QWEN2 = Family(
    model_type="qwen2",
    hf_class="Qwen2ForCausalLM",
    hf_reward_class="Qwen2ForSequenceClassification",
    gguf_name="qwen2",
    weights=(*PRE_NORMS, *attention(), *QKV_BIAS, *MLP, *ENDS),
    from_hf=_qwen2_from_hf,
    to_hf=_qwen2_to_hf,
    from_gguf=_qwen2_from_gguf,
)
QWEN3 = Family(
    model_type="qwen3",
    hf_class="Qwen3ForCausalLM",
    hf_reward_class="Qwen3ForSequenceClassification",
    gguf_name="qwen3",
    weights=(*PRE_NORMS, *attention(), *QK_NORM, *MLP, *ENDS),
    from_hf=_qwen3_from_hf,
    to_hf=_to_hf,
    from_gguf=_qwen3_from_gguf,
)
QWEN3_MOE = Family(
    model_type="qwen3_moe",
    hf_class="Qwen3MoeForCausalLM",
    hf_reward_class="Qwen3MoeForSequenceClassification",
    gguf_name="qwen3moe",
    weights=(*PRE_NORMS, *attention(), *QK_NORM, *EXPERTS, *ENDS),
    from_hf=_moe_from_hf,
    to_hf=_moe_to_hf,
    from_gguf=_moe_from_gguf,
)
