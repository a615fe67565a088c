"""What all families say about their sizes in the same words."""

from stages.engine.models.architecture import (
    Architecture,
    LinearScaling,
    Llama3Scaling,
    RopeSettings,
)
from stages.engine.models.families.family import GgufFacts, HfValue
from stages.engine.models.families.fields import Fields

DEFAULT_THETA = 10000.0


def sizes_from_hf(config: Fields, *, tied: bool) -> Architecture:
    """The plain part of a `config.json`.

    Args:
        config: its entries.
        tied: what the family's files mean that do not say whether the embedding is the output projection.
    """
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    for bias in ("attention_bias", "mlp_bias"):
        config.refuse(bias, but=False)
    return Architecture(
        num_layers=config.size("num_hidden_layers"),
        width=width,
        hidden=config.size("intermediate_size"),
        num_heads=heads,
        num_kv_heads=config.size("num_key_value_heads", heads),
        head_size=config.size("head_dim", width // heads),
        vocab_size=config.size("vocab_size"),
        rope=rope_from_hf(config),
        norm_epsilon=config.number("rms_norm_eps", 1e-6),
        tied_embeddings=config.flag("tie_word_embeddings", default=tied),
        max_positions=config.size("max_position_embeddings"),
    )


def rope_from_hf(config: Fields) -> RopeSettings:
    """From `rope_parameters`, or from `rope_theta` and `rope_scaling` as older files have it."""
    together = config.section("rope_parameters")
    angles = together if together.has("rope_theta") else config
    scaling = together if together.has("rope_type") else config.section("rope_scaling")
    for section in (config, together):
        section.refuse("partial_rotary_factor", but=1.0)
    return RopeSettings(angles.number("rope_theta", DEFAULT_THETA), scaling_from_hf(scaling))


def scaling_from_hf(scaling: Fields) -> LinearScaling | Llama3Scaling | None:
    """How frequencies are stretched; older files call the kind `type`."""
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(scaling.number("factor"))
    if kind == "llama3":
        return Llama3Scaling(
            factor=scaling.number("factor"),
            low_turns=scaling.number("low_freq_factor"),
            high_turns=scaling.number("high_freq_factor"),
            original_positions=scaling.size("original_max_position_embeddings"),
        )
    raise ValueError(f"rope_type {kind!r} is not supported; supported are default, linear and llama3")


def sizes_to_hf(arch: Architecture) -> dict[str, HfValue]:
    """The plain part of a `config.json`, in the words that old and new readers know."""
    return {
        "num_hidden_layers": arch.num_layers,
        "hidden_size": arch.width,
        "intermediate_size": arch.hidden,
        "num_attention_heads": arch.num_heads,
        "num_key_value_heads": arch.num_kv_heads,
        "head_dim": arch.head_size,
        "vocab_size": arch.vocab_size,
        "rope_theta": arch.rope.theta,
        "rope_scaling": scaling_to_hf(arch.rope.scaling),
        "rms_norm_eps": arch.norm_epsilon,
        "tie_word_embeddings": arch.tied_embeddings,
        "max_position_embeddings": arch.max_positions,
        "attention_bias": False,
    }


def scaling_to_hf(scaling: LinearScaling | Llama3Scaling | None) -> dict[str, str | float | int] | None:
    """The entry `rope_scaling`."""
    if scaling is None:
        return None
    if isinstance(scaling, LinearScaling):
        return {"rope_type": "linear", "factor": scaling.factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_turns,
        "high_freq_factor": scaling.high_turns,
        "original_max_position_embeddings": scaling.original_positions,
    }


def sizes_from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    """The plain part of GGUF metadata."""
    width, heads = metadata.size("embedding_length"), metadata.size("attention.head_count")
    head_size = metadata.size("attention.key_length", width // heads)
    if (rotated := metadata.size("rope.dimension_count", head_size)) != head_size:
        raise ValueError(f"rope.dimension_count is {rotated}, expected the whole head of {head_size}")
    return Architecture(
        num_layers=metadata.size("block_count"),
        width=width,
        hidden=metadata.size("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=metadata.size("attention.head_count_kv", heads),
        head_size=head_size,
        vocab_size=facts.vocab_size,
        rope=RopeSettings(metadata.number("rope.freq_base", DEFAULT_THETA), _scaling_from_gguf(metadata)),
        norm_epsilon=metadata.number("attention.layer_norm_rms_epsilon"),
        tied_embeddings=facts.tied,
        max_positions=metadata.size("context_length"),
    )


def _scaling_from_gguf(metadata: Fields) -> LinearScaling | None:
    kind = metadata.text("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return LinearScaling(metadata.number("rope.scaling.factor"))
    raise ValueError(f"rope.scaling.type {kind!r} is not supported; supported are none and linear")


def no_rope_factors(facts: GgufFacts) -> None:
    """Raises ValueError where a family's file has factors that only Llama's may have."""
    if facts.rope_factors is not None:
        raise ValueError("the tensor rope_freqs.weight is not supported in this family")
