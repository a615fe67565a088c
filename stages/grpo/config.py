"""Settings of `grpo`."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from stages.contract import Execution, Seed, StageConfigBase
from stages.engine.cluster.config import MeshConfig
from stages.engine.models.config import TrainedModelConfig
from stages.engine.rewards.config import RewardName
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import OptimizerConfig


class GrpoConfig(StageConfigBase):
    """Group relative policy optimization (arXiv 2402.03300). Sizes are in prompts."""

    model: TrainedModelConfig
    """What is trained."""
    optimizer: OptimizerConfig
    """How it is updated."""
    num_steps: Annotated[int, Field(ge=1)]
    """Iterations of sampling and training."""
    prompts_per_step: Annotated[int, Field(ge=1)]
    """Prompts sampled in one iteration."""
    mini_batch: Annotated[int, Field(ge=1)]
    """Prompts of one optimizer update; divides `prompts_per_step`."""
    group_size: Annotated[int, Field(ge=2)]
    """Responses sampled for each prompt."""
    sampling: SamplingConfig
    """How responses are drawn; the temperature must be above 0."""
    reward: RewardName
    """The rule that scores a response."""
    advantages: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    """How rewards of a group become advantages."""
    kl_coef: Annotated[float, Field(ge=0)]
    """Weight of the k3 estimate of KL(policy, input policy), in the loss."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The probability ratio is clipped below at 1 - clip_low."""
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    """The probability ratio is clipped above at 1 + clip_high."""
    aggregation: Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum"] = "token_mean"
    """How losses of tokens become one loss."""
    seed: Seed
    """Seed of the adapter's start, the order of prompts and the samples."""
    train_micro_batch: Annotated[int, Field(ge=1)] = Execution(4)
    """Prompts of one backward pass, on each part of the rows; a mini-batch is filled up to it with empty rows."""
    rollout_micro_batch: Annotated[int, Field(ge=1)] = Execution(8)
    """Prompts sampled at once; divides `prompts_per_step`, or is larger and means all of it."""
    save_every_steps: Annotated[int, Field(ge=1)] = Execution(5)
    """Steps between two resumable checkpoints."""
    mesh: MeshConfig = Execution(MeshConfig())
    """How the devices share the work."""

    @field_validator("sampling")
    @classmethod
    def _check_sampling(cls, sampling: SamplingConfig) -> SamplingConfig:
        if sampling.temperature == 0:
            raise ValueError("temperature 0 draws the same response every time; training needs one above 0")
        return sampling

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        rollout = min(self.rollout_micro_batch, self.prompts_per_step)
        problems = [
            f"{name} {size} does not divide prompts_per_step {self.prompts_per_step}"
            for name, size in (("mini_batch", self.mini_batch), ("rollout_micro_batch", rollout))
            if self.prompts_per_step % size
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self
