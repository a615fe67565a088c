"""Settings of the trained model."""

from typing import Annotated, Literal

from pydantic import Field

from stages.contract import Strict

LoraTarget = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraConfig(Strict):
    """Low-rank adapters (arXiv 2106.09685): W + (alpha / rank) B A."""

    rank: Annotated[int, Field(ge=1)]
    """Inner size of the adapter's matrices."""
    alpha: Annotated[float, Field(gt=0)]
    """Scale; the adapter's product is multiplied by alpha / rank."""
    targets: Annotated[tuple[LoraTarget, ...], Field(min_length=1)] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Linear layers that get an adapter, in every block."""


class TrainedModelConfig(Strict):
    """How the input model is trained."""

    lora: LoraConfig
    """The trained adapter. An input that has an adapter must have been trained with the same section."""
