"""Settings of `sft`."""

from typing import Annotated

from pydantic import Field

from stages.contract import Execution, StageConfigBase
from stages.engine.models.config import TrainedModelConfig
from stages.engine.training.config import OptimizerConfig


class SftConfig(StageConfigBase):
    """Supervised fine-tuning on responses."""

    model: TrainedModelConfig
    """What is trained."""
    optimizer: OptimizerConfig
    """How it is updated."""
    num_steps: Annotated[int, Field(ge=1)]
    """Optimizer updates."""
    batch_size: Annotated[int, Field(ge=1)]
    """Examples of one update."""
    max_tokens: Annotated[int, Field(ge=2)] = 1024
    """Longest example in tokens, prompt and response together; a longer one is an error."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of the adapter's start and of the order of examples."""
    train_micro_batch: Annotated[int, Field(ge=1)] = Execution(8)
    """Examples of one backward pass; divides `batch_size`."""
    save_every_steps: Annotated[int, Field(ge=1)] = Execution(10)
    """Steps between two resumable checkpoints."""
