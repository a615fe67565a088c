"""An adapter as PEFT has it: `adapter_model.safetensors` and `adapter_config.json`."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Shaped

from stages.contract import Strict
from stages.engine.models.config import LoraConfig
from stages.engine.models.families.family import MLP, attention
from stages.engine.models.lora import Weights
from stages.errors import UserError

PEFT_WEIGHTS_FILE, PEFT_CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"

MODULES = {name.path: name.hf.removesuffix(".weight") for name in (*attention(), *MLP)}
"""Names of linear layers in Hugging Face models, of whatever family, by the path of their kernels here."""


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
    task_type: str = "CAUSAL_LM"
    bias: str = "none"
    fan_in_fan_out: bool = False
    inference_mode: bool = True


def peft_config(lora: LoraConfig, base: str, revision: str | None = None) -> PeftConfig:
    """How PEFT reads the adapter over the model named `base`, of the Hub's `revision` where it is there."""
    return PeftConfig(
        base_model_name_or_path=base,
        revision=revision,
        r=lora.rank,
        lora_alpha=lora.alpha,
        use_rslora=lora.scaling == "rank_stabilized",
        target_modules=lora.targets,
    )


def peft_weights(adapter: Weights) -> Iterator[tuple[str, Shaped[np.ndarray, "O I"]]]:
    """The adapter's matrices layer by layer, under PEFT's names: `lora_A.weight` [r, in], `lora_B.weight` [out, r].

    Raises:
        UserError: the adapter is on a router, which is no linear layer there.
    """
    for name, stacked in adapter.items():
        kernel, part = name[: -len("_lora_a")], name[-1].upper()
        if kernel not in MODULES:
            raise UserError(f"PEFT has no adapter on {kernel}: export the merged model instead")
        for layer, matrix in enumerate(np.asarray(stacked)):
            yield f"base_model.model.{MODULES[kernel].format(layer=layer)}.lora_{part}.weight", matrix.T
