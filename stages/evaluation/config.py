"""Settings of `evaluation`."""

from typing import Annotated

from pydantic import Field

from stages.contract import Execution, Seed, StageConfigBase
from stages.engine.rewards.config import RewardName
from stages.engine.rollout.config import SamplingConfig


class EvaluationConfig(StageConfigBase):
    """Accuracy on problems with a known answer."""

    sampling: SamplingConfig
    """How responses are drawn."""
    accuracy: RewardName = "last_integer"
    """The rule that decides whether a response is right; the strict whole-reply rate is reported beside it."""
    seed: Seed = 0
    """Seed of the samples; without effect at temperature 0."""
    rollout_micro_batch: Annotated[int, Field(ge=1)] = Execution(32)
    """Problems answered at once."""
