"""An adapter as PEFT has it: `adapter_model.safetensors` and `adapter_config.json`."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Shaped

from stages.contract import Strict
from stages.engine.models.config import LoraConfig
from stages.engine.models.families.family import EXPERTS, MLP, REWARD_HEAD, attention
from stages.engine.models.lora import Weights
from stages.errors import UserError

PEFT_WEIGHTS_FILE, PEFT_CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"

MODULES = {name.path: name.hf.removesuffix(".weight") for name in (*attention(), *MLP)}
"""Names of linear layers in Hugging Face models, of whatever family, by the path of their kernels here."""

OF_MIXTURES = MODULES | {name.path: name.hf.removesuffix(".weight") for name in EXPERTS}
"""The same for mixtures of experts, whose experts and router have these names in files."""

TARGETS = {"router": "gate"}
"""Names of layers that are others here."""

FUSED = {"blocks.mlp.gate_proj.kernel", "blocks.mlp.up_proj.kernel"}
"""Kernels that models of today hold as one, so that PEFT takes the adapters of experts over both or over neither."""


class PeftConfig(Strict):
    """The entries of `adapter_config.json`."""

    base_model_name_or_path: str
    revision: str | None
    r: int
    lora_alpha: float
    use_rslora: bool
    target_modules: tuple[str, ...]
    lora_dropout: float = 0.0
    peft_type: str = "LORA"
    task_type: Literal["CAUSAL_LM", "SEQ_CLS"]
    modules_to_save: tuple[str, ...] | None
    bias: str = "none"
    fan_in_fan_out: bool = False
    inference_mode: bool = True


def peft_config(
    lora: LoraConfig, base: str, revision: str | None = None, *, mixture: bool = False, reward: bool = False
) -> PeftConfig:
    """How PEFT reads the adapter over the model named `base`, of the Hub's `revision` where it is there.

    That of a reward model (`reward`) brings a head along, which PEFT puts in the place of the base's own. Over a
    mixture of experts the scale is always told as alpha / rank: PEFT makes one adapter of twice the rank out of those
    that it fuses, and would take the root of that.
    """
    stabilized = lora.scaling == "rank_stabilized"
    return PeftConfig(
        base_model_name_or_path=base,
        revision=revision,
        r=lora.rank,
        lora_alpha=lora.scale * lora.rank if mixture and stabilized else lora.alpha,
        use_rslora=stabilized and not mixture,
        target_modules=tuple(TARGETS.get(name, name) for name in lora.targets),
        task_type="SEQ_CLS" if reward else "CAUSAL_LM",
        modules_to_save=(REWARD_HEAD.hf.removesuffix(".weight"),) if reward else None,
    )


def peft_weights(adapter: Weights, *, mixture: bool = False) -> Iterator[tuple[str, Shaped[np.ndarray, "O I"]]]:
    """The adapter's matrices one by one, under PEFT's names: `lora_A.weight` [r, in], `lora_B.weight` [out, r].

    Args:
        adapter: by path, layers stacked, and experts after them.
        mixture: whether it is over a mixture of experts.

    Raises:
        UserError: it is on one of two matrices of experts that PEFT adapts together.
    """
    kernels = {name[: -len("_lora_a")] for name in adapter}
    if mixture and len(kernels & FUSED) == 1:
        raise UserError(
            "PEFT adapts gate_proj and up_proj of experts together, and this adapter is on one of them: export the "
            "merged model instead"
        )
    modules = OF_MIXTURES if mixture else MODULES
    for name, stacked in adapter.items():
        module, part = modules[name[: -len("_lora_a")]], name[-1].upper()
        matrices = np.asarray(stacked)
        for place in np.ndindex(matrices.shape[:-2]):
            numbered = module.format(**dict(zip(("layer", "expert"), place, strict=False)))
            yield f"base_model.model.{numbered}.lora_{part}.weight", matrices[place].T
