"""Settings of `sft`."""

from stages.engine.training.config import SupervisedConfig


class SftConfig(SupervisedConfig):
    """Supervised fine-tuning on responses."""
