"""Settings of `reward_model`."""

from typing import Annotated, Literal

from pydantic import Field

from stages.engine.training.config import SupervisedConfig


class RewardModelConfig(SupervisedConfig):
    """Training of a reward model, adapter and head together, on pairs of a chosen and a rejected response."""

    centering_coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of (chosen + rejected)² in the loss, which keeps rewards around 0 (arXiv 2312.09244)."""
    margin_scale: Annotated[float, Field(ge=0)] = 1.0
    """By how much rewards have to differ for each unit of a row's margin; 0 leaves margins out."""
    identical_pairs: Literal["fail", "drop"] = "fail"
    """What becomes of pairs whose responses are the same tokens: they say nothing."""
    num_bins: Annotated[int, Field(ge=1)] = 10
    """Bins of confidence, from a half to 1, in which the calibration on `validation` is measured."""
