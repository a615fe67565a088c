"""Settings of `sft`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from stages.contract import Added, Execution, Seed, StageConfigBase
from stages.engine.cluster.config import MeshConfig
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
    adapter_dropout: Annotated[float, Field(ge=0, lt=1)] = Added(0.0)
    """Share of its inputs that an adapted layer hides from its adapter in a training step, and nowhere else."""
    seed: Seed
    """Seed of the adapter's start, of the order of examples and of dropout."""
    train_micro_batch: Annotated[int, Field(ge=1)] = Execution(8)
    """Examples of one backward pass, on each part of the rows; divides `batch_size`, or is larger: all of it."""
    save_every_steps: Annotated[int, Field(ge=1)] = Execution(10)
    """Steps between two resumable checkpoints."""
    mesh: MeshConfig = Execution(MeshConfig())
    """How the devices share the work."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.batch_size % min(self.train_micro_batch, self.batch_size):
            raise ValueError(f"train_micro_batch {self.train_micro_batch} does not divide batch_size {self.batch_size}")
        return self
