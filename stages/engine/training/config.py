"""Settings of the optimizer."""

from typing import Annotated, Literal

from pydantic import Field

from stages.contract import Strict


class OptimizerConfig(Strict):
    """AdamW with warm-up, decay and clipping of the global gradient norm."""

    learning_rate: Annotated[float, Field(gt=0)]
    """Peak learning rate."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Updates over which the learning rate rises linearly from 0."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls to 0 between warm-up and the last step; `constant` keeps it."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay on trained matrices."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of the second moment."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Global norm to which larger gradients are scaled down before the update."""
