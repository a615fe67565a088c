"""Settings of the trained model."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from stages.contract import Added, Execution, Quantization, Strict

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
GROUPS: dict[str, tuple[str, ...]] = {"attention": ATTENTION, "mlp": MLP, "all": (*ATTENTION, *MLP)}

LoraTarget = Literal[
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "router", "attention", "mlp", "all"
]


class LoraConfig(Strict):
    """Low-rank adapters (arXiv 2106.09685): W + scale * A B."""

    rank: Annotated[int, Field(ge=1)]
    """Inner size of the adapter's matrices."""
    alpha: Annotated[float, Field(gt=0)]
    """The adapter's product is multiplied by alpha / rank, or by alpha / sqrt(rank): see `scaling`."""
    targets: Annotated[tuple[LoraTarget, ...], Field(min_length=1)] = (*ATTENTION, *MLP)
    """Linear layers that get an adapter, in every block; `attention`, `mlp` and `all` stand for those of that name."""
    scaling: Literal["standard", "rank_stabilized"] = Added("standard")
    """What alpha is divided by: the rank, or its square root, with which large ranks learn too (arXiv 2312.03732)."""

    @field_validator("targets")
    @classmethod
    def _name_modules(cls, targets: tuple[LoraTarget, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for target in targets for name in GROUPS.get(target, (target,))))

    @property
    def scale(self) -> float:
        """What the adapter's product is multiplied by."""
        return self.alpha / (self.rank if self.scaling == "standard" else self.rank**0.5)


Remat = Literal["none", "dots", "full"]


Precision = Literal["float32", "bfloat16"]


class TrainedModelConfig(Strict):
    """How the input model is trained."""

    lora: LoraConfig | None
    """The trained adapter; null trains all weights. An input that has one must have been trained with the same
    section."""
    quantization: Quantization | None = Added(None)
    """How the base is stored under the adapter (QLoRA); its weights are as in the checkpoint without it."""
    precision: Precision = Added("float32")
    """Type that layers compute in, and that a base under an adapter is kept in; trained weights, their optimizer and
    the loss stay in float32."""
    remat: Remat = Execution("none")
    """What a layer's backward pass computes again to save memory: `none`, all but matrix products (`dots`), or all."""

    @model_validator(mode="after")
    def _check_quantization(self) -> "TrainedModelConfig":
        if self.quantization and self.lora is None:
            raise ValueError("quantization is for a base under an adapter, but lora is null: all weights are trained")
        return self
