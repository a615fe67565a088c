"""Prompts sampled and scored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from stages.engine.data.chat import Chat
from stages.engine.data.records import Row
from stages.engine.models.lora import Weights
from stages.engine.rewards.catalog import Reward
from stages.engine.rewards.scoring import score
from stages.engine.rollout.native.sampler import NativeSampler, Responses
from stages.engine.rollout.together import sample_together


class Prompt(NamedTuple):
    """A prompt in ids, the answer that its responses are scored against, and the id of its row."""

    ids: list[int]
    answer: str
    row: str


@dataclass(frozen=True)
class Rollout:
    """P prompts with G scored responses each.

    Attributes:
        prompts: as sampled.
        responses: to each prompt.
        rewards: of each response.
    """

    prompts: Sequence[Prompt]
    responses: Responses
    rewards: Float32[np.ndarray, "P G"]

    def num_tokens(self, rows: Iterable[int]) -> int:
        """Response tokens to some of the prompts."""
        return sum(len(response) for row in rows for response in self.responses.tokens[row])


def make_prompts(rows: Sequence[Row], chat: Chat) -> list[Prompt]:
    """Every row's prompt, in the rows' order."""
    return [Prompt(chat.prompt_ids(row.messages, row.tools), row.answer, row.id) for row in rows]


def collect(
    sampler: NativeSampler,
    weights: Weights,
    prompts: Sequence[Prompt],
    rows: Sequence[int],
    *,
    step: int,
    chat: Chat,
    reward: Reward,
) -> Rollout:
    """Samples responses to some rows of the dataset and scores them; all processes of a cluster do it together.

    Args:
        sampler: of the policy.
        weights: the policy's trained part.
        prompts: of the whole dataset.
        rows: which to sample; a row's number is its prompt id, so that its samples are its own.
        step: see `NativeSampler.sample`.
        chat: turns responses into text.
        reward: from a response's text and the answer.
    """
    chosen = [prompts[row] for row in rows]
    responses = sample_together(sampler, weights, [prompt.ids for prompt in chosen], rows, step)
    rewards = [
        [score(reward, chat.reply_text(response), prompt.answer, prompt.row) for response in group]
        for prompt, group in zip(chosen, responses.tokens, strict=True)
    ]
    return Rollout(chosen, responses, np.array(rewards, np.float32))
