"""What a policy learns from: groups of responses with everything that belongs to each of their tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from stages.engine.data.batching import Batch, Tree, pack_trees, pad_rows, take_rows

PerToken = Float32[np.ndarray, "B R"]


class Experience(NamedTuple):
    """B groups, one a row; per-token fields lie as the batch's targets, G responses of R / G slots each.

    Attributes:
        batch: prompts and responses.
        old_logprobs: of each token under the distribution that it was drawn from, in nats.
        advantages: of each token.
    """

    batch: Batch
    old_logprobs: PerToken
    advantages: PerToken


def make_experience(
    groups: Sequence[Tree],
    logprobs: Float32[np.ndarray, "P G T"],
    advantages: Float32[np.ndarray, "P G"],
    width: int,
) -> Experience:
    """Packs groups.

    Args:
        groups: a prompt and its responses each.
        logprobs: the sampler's.
        advantages: one for each response; every token of it gets the same.
        width: inputs of a row.
    """
    num_prompts, group_size, max_response = logprobs.shape
    batch = pack_trees(groups, max_response=max_response, width=width)
    shape = (num_prompts, group_size * max_response)
    spread = np.broadcast_to(advantages[:, :, None], logprobs.shape).reshape(shape)
    return Experience(batch, logprobs.reshape(shape), np.ascontiguousarray(spread, np.float32))


def micro_batches(experience: Experience, size: int) -> list[Experience]:
    """Parts of `size` groups; the last is filled up with empty rows, which have no targets."""
    parts = []
    for start in range(0, len(experience.advantages), size):
        here = slice(start, start + size)
        missing = size - len(experience.advantages[here])
        old, advantages = (
            np.pad(field[here], ((0, missing), (0, 0))) for field in (experience.old_logprobs, experience.advantages)
        )
        parts.append(Experience(pad_rows(take_rows(experience.batch, here), size), old, advantages))
    return parts
