"""Which groups a policy can learn from."""

import numpy as np
from jaxtyping import Bool, Float32

from stages.errors import UserError


def mixed_groups(rewards: Float32[np.ndarray, "P G"]) -> Bool[np.ndarray, " P"]:
    """Groups whose rewards differ; a tied group has no advantage and leaves the loss and its denominator alone.

    Raises:
        UserError: a reward is not finite; the message names its prompt.
    """
    bad = np.argwhere(~np.isfinite(rewards))
    if len(bad):
        prompt, sample = bad[0]
        raise UserError(f"the reward of sample {sample} to prompt {prompt} of this step is {rewards[prompt, sample]}")
    return rewards.max(axis=1) != rewards.min(axis=1)
