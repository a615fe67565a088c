"""Settings of `teacher_logits`."""

from typing import Annotated

from pydantic import Field

from stages.contract import Execution, StageConfigBase
from stages.engine.cluster.config import MeshConfig


class TeacherLogitsConfig(StageConfigBase):
    """What the input `teacher` makes of a dataset, kept beside its rows for any number of `distillation` stages."""

    num_top: Annotated[int, Field(ge=1)]
    """Likeliest tokens that are kept for each target; all others together are one more event."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits; that of the `distillation` stages."""
    max_tokens: Annotated[int, Field(ge=2)] = 1024
    """Longest example in tokens, prompt and response together."""
    micro_batch: Annotated[int, Field(ge=1)] = Execution(8)
    """Longest examples that one pass has room for on each part of the rows; shorter ones are packed."""
    mesh: MeshConfig = Execution(MeshConfig())
    """How the devices share the work."""
