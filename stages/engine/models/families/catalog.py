"""Every family, in one literal table."""

from collections.abc import Mapping

from stages.engine.models.families.family import Family
from stages.engine.models.families.gemma import GEMMA2, GEMMA3
from stages.engine.models.families.llama import LLAMA
from stages.engine.models.families.qwen import QWEN2, QWEN3, QWEN3_MOE

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
}
"""By `model_type` of their `config.json`."""


def family_of_gguf(name: str) -> Family | None:
    """The family whose GGUF files have this `general.architecture`."""
    return next((family for family in FAMILIES.values() if family.gguf_name == name), None)
