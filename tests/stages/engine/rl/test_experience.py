"""Groups packed with everything that belongs to each of their tokens."""

import numpy as np
import pytest

from stages.engine.data.batching import Group
from stages.engine.data.layout import choose_layout
from stages.engine.rl.experience import Experience, make_experience

GROUPS = [
    Group((1, 2, 3), [(10, 11), (12,)]),
    Group((1, 2, 4), [(20,), (21, 22, 23)]),
    Group((1, 2), [(30, 31), (32, 33)]),
]
LOGPROBS = -np.arange(1, 3 * 2 * 4 + 1, dtype=np.float32).reshape(3, 2, 4)
ADVANTAGES = np.array([[0.5, -0.5], [1.5, 2.5], [-3.5, 4.5]], np.float32)


def tokens(parts: list[Experience]) -> list[tuple[int, float, float]]:
    """Each target with its log-probability and advantage, in order."""
    out: list[tuple[int, float, float]] = []
    for part in parts:
        mask = part.batch.target_mask
        columns = (part.batch.targets[mask], part.old_logprobs[mask], part.advantages[mask])
        out += zip(*(column.tolist() for column in columns), strict=True)
    return out


@pytest.mark.parametrize("common", [0, 50])
@pytest.mark.parametrize("micro_batch", [1, 2, 3, 5])
def test_every_token_travels_with_its_log_probability_and_its_responses_advantage(
    common: int, micro_batch: int
) -> None:
    groups = [Group((*range(100, 100 + common), *group.prompt), group.responses) for group in GROUPS]
    prompts = [group.prompt for group in groups]
    layout = choose_layout(prompts, batch_size=len(prompts), micro_batch=micro_batch, group_size=2, max_response=4)
    parts = make_experience(groups, LOGPROBS, ADVANTAGES, layout)
    assert len(parts) == -(-3 // micro_batch)
    assert len({part.old_logprobs.shape for part in parts}) == 1
    assert tokens(parts) == [
        (token, float(LOGPROBS[number, sample, at]), float(ADVANTAGES[number, sample]))
        for number, group in enumerate(groups)
        for sample, response in enumerate(group.responses)
        for at, token in enumerate(response)
    ]


def test_fractions_stay_fractions() -> None:
    layout = choose_layout([GROUPS[0].prompt], batch_size=1, micro_batch=1, group_size=2, max_response=4)
    (part,) = make_experience(GROUPS[:1], LOGPROBS[:1], np.array([[0.7, -0.7]], np.float32), layout)
    assert part.advantages.dtype == part.old_logprobs.dtype == np.float32
    assert set(part.advantages[part.batch.target_mask].tolist()) == {np.float32(0.7).item(), np.float32(-0.7).item()}
