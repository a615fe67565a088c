"""Llama and models of its shape, SmolLM2 among them: where sizes and weights are found.

Linear weights are stored [out, in] in both formats, and used here as [in, out].
"""

from collections.abc import Mapping

from stages.engine.data.gguf import GgufValue
from stages.engine.models.architecture import Architecture

HF_MODEL_TYPE = "llama"
GGUF_ARCHITECTURE = "llama"

# Path in the decoder, Hugging Face name, GGUF name; {} is the layer.
LAYER_WEIGHTS = (
    ("blocks.attention_norm.scale", "model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"),
    ("blocks.attention.q_proj.kernel", "model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"),
    ("blocks.attention.k_proj.kernel", "model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"),
    ("blocks.attention.v_proj.kernel", "model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"),
    ("blocks.attention.o_proj.kernel", "model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"),
    ("blocks.mlp_norm.scale", "model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"),
    ("blocks.mlp.gate_proj.kernel", "model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"),
    ("blocks.mlp.up_proj.kernel", "model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"),
    ("blocks.mlp.down_proj.kernel", "model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"),
)
GLOBAL_WEIGHTS = (
    ("embed.embedding", "model.embed_tokens.weight", "token_embd.weight"),
    ("norm.scale", "model.norm.weight", "output_norm.weight"),
    ("lm_head.kernel", "lm_head.weight", "output.weight"),
)
# GGUF files of this family hold these with each head's rotary pairs interleaved.
GGUF_INTERLEAVED = {"blocks.attention.q_proj.kernel": "num_heads", "blocks.attention.k_proj.kernel": "num_kv_heads"}


def architecture_from_hf(config: Mapping[str, object]) -> Architecture:
    """From a Hugging Face `config.json`; ValueError says what is missing or not supported."""
    width, heads = _int(config, "hidden_size"), _int(config, "num_attention_heads")
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping) and rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type {rope['rope_type']!r} is not supported")
    if config.get("rope_scaling"):
        raise ValueError("rope_scaling is not supported")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act {config['hidden_act']!r} is not supported")
    angles = rope if isinstance(rope, Mapping) else config
    return Architecture(
        num_layers=_int(config, "num_hidden_layers"),
        width=width,
        hidden=_int(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=_int(config, "num_key_value_heads") if "num_key_value_heads" in config else heads,
        head_size=_int(config, "head_dim") if config.get("head_dim") else width // heads,
        vocab_size=_int(config, "vocab_size"),
        rope_theta=_float(angles, "rope_theta") if angles.get("rope_theta") is not None else 10000.0,
        norm_epsilon=_float(config, "rms_norm_eps"),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_positions=_int(config, "max_position_embeddings"),
    )


def architecture_from_gguf(metadata: Mapping[str, GgufValue], tensor_names: frozenset[str]) -> Architecture:
    """From GGUF metadata; ValueError says what is missing or not supported."""
    prefix = GGUF_ARCHITECTURE
    scaling = metadata.get(f"{prefix}.rope.scaling.type", "none")
    if scaling != "none":
        raise ValueError(f"{prefix}.rope.scaling.type {scaling!r} is not supported")
    heads, width = _int(metadata, f"{prefix}.attention.head_count"), _int(metadata, f"{prefix}.embedding_length")
    return Architecture(
        num_layers=_int(metadata, f"{prefix}.block_count"),
        width=width,
        hidden=_int(metadata, f"{prefix}.feed_forward_length"),
        num_heads=heads,
        num_kv_heads=_int(metadata, f"{prefix}.attention.head_count_kv"),
        head_size=_int(metadata, key) if (key := f"{prefix}.attention.key_length") in metadata else width // heads,
        vocab_size=_int(metadata, f"{prefix}.vocab_size"),
        rope_theta=_float(metadata, f"{prefix}.rope.freq_base"),
        norm_epsilon=_float(metadata, f"{prefix}.attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in tensor_names,
        max_positions=_int(metadata, f"{prefix}.context_length"),
    )


def _value(values: Mapping[str, object], name: str) -> object:
    if name not in values:
        raise ValueError(f"{name} is missing")
    return values[name]


def _int(values: Mapping[str, object], name: str) -> int:
    value = _value(values, name)
    if not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}, expected a whole number")
    return value


def _float(values: Mapping[str, object], name: str) -> float:
    value = _value(values, name)
    if not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, expected a number")
    return float(value)
