"""What a policy learns from: groups of responses with everything that belongs to each of their tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from stages.engine.data.batching import Batch, Group
from stages.engine.data.layout import Layout

PerToken = Float32[np.ndarray, "B R"]


class Experience(NamedTuple):
    """A micro-batch of groups; per-token fields lie as the batch's targets.

    Attributes:
        batch: prompts and responses.
        old_logprobs: of each token under the distribution that it was drawn from, in nats.
        advantages: of each token.
    """

    batch: Batch
    old_logprobs: PerToken
    advantages: PerToken


def make_experience(
    groups: Sequence[Group],
    logprobs: Float32[np.ndarray, "P G T"],
    advantages: Float32[np.ndarray, "P G"],
    layout: Layout,
) -> list[Experience]:
    """Packs groups into micro-batches.

    Args:
        groups: a prompt and its responses each.
        logprobs: the sampler's.
        advantages: one for each response; every token of it gets the same.
        layout: of the micro-batches.
    """
    by_token = np.ascontiguousarray(np.broadcast_to(advantages[:, :, None], logprobs.shape))
    return [
        Experience(layout.pack(groups[part]), layout.spread(logprobs[part]), layout.spread(by_token[part]))
        for part in layout.parts(len(groups))
    ]
