"""What makes a family: where its sizes stand in a checkpoint, and how its tensors are named there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from stages.engine.models.architecture import Architecture
from stages.engine.models.families.fields import Fields

HfValue = str | int | float | bool | None | list[str] | dict[str, str | float | int]
"""A value of a `config.json` that is written here."""


class WeightName(NamedTuple):
    """One weight of the decoder, and the tensors that hold it.

    Linear weights are stored [out, in] in both formats, and used here as [in, out].

    Attributes:
        path: in the decoder; below `blocks.` the layers are stacked, and experts after them.
        hf: name in Hugging Face files, where {layer} and {expert} stand for numbers.
        gguf: name in GGUF files, where {layer} stands for a number; experts are stacked there too.
        gguf_form: how GGUF files hold it: rotary pairs of each head beside each other, or 1 added to it.
    """

    path: str
    hf: str
    gguf: str
    gguf_form: Literal["plain", "interleaved", "plus_one"] = "plain"


class GgufFacts(NamedTuple):
    """What a GGUF file tells about an architecture beside its metadata.

    Attributes:
        vocab_size: rows of its embedding.
        tied: whether it has no output matrix of its own.
        rope_factors: by what each frequency is divided, where it has a tensor of them.
    """

    vocab_size: int
    tied: bool
    rope_factors: np.ndarray | None


@dataclass(frozen=True)
class Family:
    """Data about one family. The functions raise ValueError, which says what is missing or not supported.

    Attributes:
        model_type: in `config.json`.
        hf_class: name of the model's class in `config.json`.
        hf_reward_class: the same for a reward model.
        gguf_name: `general.architecture` of GGUF files.
        weights: names of all tensors.
        from_hf: sizes out of a `config.json`.
        to_hf: entries of a `config.json` beside the model's type and class.
        from_gguf: sizes out of a GGUF file's metadata below its architecture's name.
    """

    model_type: str
    hf_class: str
    hf_reward_class: str
    gguf_name: str
    weights: tuple[WeightName, ...]
    from_hf: Callable[[Fields], Architecture]
    to_hf: Callable[[Architecture], Mapping[str, HfValue]]
    from_gguf: Callable[[Fields, GgufFacts], Architecture]


def plus_one(names: tuple[WeightName, ...]) -> tuple[WeightName, ...]:
    """The same names for a family whose GGUF files hold every norm's scale with 1 added."""
    return tuple(name._replace(gguf_form="plus_one") if name.path.endswith("norm.scale") else name for name in names)


def _layer(path: str, hf: str, gguf: str, form: Literal["plain", "interleaved"] = "plain") -> WeightName:
    return WeightName(f"blocks.{path}", f"model.layers.{{layer}}.{hf}", f"blk.{{layer}}.{gguf}", form)


def attention(qk_form: Literal["plain", "interleaved"] = "plain") -> tuple[WeightName, ...]:
    """The four projections; `qk_form` is how GGUF files hold those of queries and keys."""
    return (
        _layer("attention.q_proj.kernel", "self_attn.q_proj.weight", "attn_q.weight", qk_form),
        _layer("attention.k_proj.kernel", "self_attn.k_proj.weight", "attn_k.weight", qk_form),
        _layer("attention.v_proj.kernel", "self_attn.v_proj.weight", "attn_v.weight"),
        _layer("attention.o_proj.kernel", "self_attn.o_proj.weight", "attn_output.weight"),
    )


PRE_NORMS = (
    _layer("attention_norm.scale", "input_layernorm.weight", "attn_norm.weight"),
    _layer("mlp_norm.scale", "post_attention_layernorm.weight", "ffn_norm.weight"),
)
PRE_AND_POST_NORMS = (
    _layer("attention_norm.scale", "input_layernorm.weight", "attn_norm.weight"),
    _layer("attention_post_norm.scale", "post_attention_layernorm.weight", "post_attention_norm.weight"),
    _layer("mlp_norm.scale", "pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    _layer("mlp_post_norm.scale", "post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
)
QKV_BIAS = (
    _layer("attention.q_proj.bias", "self_attn.q_proj.bias", "attn_q.bias"),
    _layer("attention.k_proj.bias", "self_attn.k_proj.bias", "attn_k.bias"),
    _layer("attention.v_proj.bias", "self_attn.v_proj.bias", "attn_v.bias"),
)
QK_NORM = (
    _layer("attention.q_norm.scale", "self_attn.q_norm.weight", "attn_q_norm.weight"),
    _layer("attention.k_norm.scale", "self_attn.k_norm.weight", "attn_k_norm.weight"),
)
MLP = (
    _layer("mlp.gate_proj.kernel", "mlp.gate_proj.weight", "ffn_gate.weight"),
    _layer("mlp.up_proj.kernel", "mlp.up_proj.weight", "ffn_up.weight"),
    _layer("mlp.down_proj.kernel", "mlp.down_proj.weight", "ffn_down.weight"),
)
EXPERTS = (
    _layer("mlp.router.kernel", "mlp.gate.weight", "ffn_gate_inp.weight"),
    _layer("mlp.gate_proj.kernel", "mlp.experts.{expert}.gate_proj.weight", "ffn_gate_exps.weight"),
    _layer("mlp.up_proj.kernel", "mlp.experts.{expert}.up_proj.weight", "ffn_up_exps.weight"),
    _layer("mlp.down_proj.kernel", "mlp.experts.{expert}.down_proj.weight", "ffn_down_exps.weight"),
)
ENDS = (
    WeightName("embed.embedding", "model.embed_tokens.weight", "token_embd.weight"),
    WeightName("norm.scale", "model.norm.weight", "output_norm.weight"),
    WeightName("lm_head.kernel", "lm_head.weight", "output.weight"),
)
"""The last of them is not there in a model whose output projection is the embedding."""
REWARD_HEAD = WeightName("value_head.kernel", "score.weight", "cls.output.weight")
"""What a reward model has in place of an output projection; it is no part of the decoder."""
