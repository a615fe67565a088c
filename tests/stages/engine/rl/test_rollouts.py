"""Prompts sampled and scored."""

import numpy as np
import pytest

from stages.engine.data.records import Message, Row
from stages.engine.models.lora import Weights
from stages.engine.models.source import LoadedModel
from stages.engine.rl.rollouts import collect, make_prompts
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.sampler import NativeSampler

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ROWS = [
    Row(id=f"row-{n}", messages=(Message(role="user", content=f"{n} + 1"),), response=str(n + 1), answer=str(n + 1))
    for n in range(4)
]


def test_rewards_belong_to_their_responses_and_are_fractions(tiny: LoadedModel, moved: Weights) -> None:
    prompts = make_prompts(ROWS, tiny.chat)
    assert [prompt.answer for prompt in prompts] == ["1", "2", "3", "4"]
    assert tiny.chat.tokenizer.decode(prompts[2].ids, skip_special=False).count("2 + 1") == 1
    sampler = NativeSampler(
        tiny.frozen,
        tiny.chat.tokenizer.eos_ids,
        SamplingConfig(temperature=1.0, max_response_tokens=4),
        group_size=3,
        micro_batch=3,
        prompts=[prompt.ids for prompt in prompts],
        seed=1,
    )
    seen: list[tuple[str, str]] = []

    def reward(text: str, answer: str) -> float:
        seen.append((text, answer))
        return len(seen) / 10

    rollout = collect(sampler, moved, prompts, [3, 1], step=0, chat=tiny.chat, reward=reward)
    assert [answer for _, answer in seen] == ["4"] * 3 + ["2"] * 3
    np.testing.assert_allclose(rollout.rewards, [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], rtol=1e-6)
    texts = [tiny.chat.reply_text(response) for group in rollout.responses.tokens for response in group]
    assert [text for text, _ in seen] == texts
    assert rollout.num_tokens([1]) == sum(map(len, rollout.responses.tokens[1]))
    again = collect(sampler, moved, prompts, [1], step=0, chat=tiny.chat, reward=lambda *_: 0.0)
    assert again.responses.tokens == rollout.responses.tokens[1:]
