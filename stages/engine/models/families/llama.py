"""Llama 3 and models of its shape, SmolLM2 among them."""

from dataclasses import replace

import numpy as np

from stages.engine.models.architecture import Architecture, Llama3Scaling, RopeSettings
from stages.engine.models.families.family import ENDS, MLP, PRE_NORMS, Family, GgufFacts, HfValue, attention
from stages.engine.models.families.fields import Fields
from stages.engine.models.families.sizes import sizes_from_gguf, sizes_from_hf, sizes_to_hf
from stages.engine.models.rope import frequencies

PUBLISHED_SCALING = tuple(Llama3Scaling(factor, 1.0, 4.0, 8192) for factor in (8.0, 32.0))
"""Of Llama 3.1 and 3.3, and of 3.2: GGUF files hold only what comes of them for each frequency."""


def _from_hf(config: Fields) -> Architecture:
    config.refuse("hidden_act", but="silu")
    return sizes_from_hf(config, tied=False)


def _to_hf(arch: Architecture) -> dict[str, HfValue]:
    return {**sizes_to_hf(arch), "hidden_act": "silu", "mlp_bias": False}


def _from_gguf(metadata: Fields, facts: GgufFacts) -> Architecture:
    arch = sizes_from_gguf(metadata, facts)
    if facts.rope_factors is None:
        return arch
    plain = frequencies(arch.head_size, arch.rope)
    for scaling in PUBLISHED_SCALING:
        stretched = RopeSettings(arch.rope.theta, scaling)
        if np.allclose(plain / facts.rope_factors, frequencies(arch.head_size, stretched), rtol=1e-5):
            return replace(arch, rope=stretched)
    raise ValueError("the factors in rope_freqs.weight are those of no published model")


LLAMA = Family(
    model_type="llama",
    hf_class="LlamaForCausalLM",
    hf_reward_class="LlamaForSequenceClassification",
    gguf_name="llama",
    weights=(*PRE_NORMS, *attention("interleaved"), *MLP, *ENDS),
    from_hf=_from_hf,
    to_hf=_to_hf,
    from_gguf=_from_gguf,
)
