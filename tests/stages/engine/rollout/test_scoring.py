"""Rewards under a frozen reward model, whatever else is scored beside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.data.batching import Group
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.families.family import REWARD_HEAD
from stages.engine.models.lora import Weights, bind
from stages.engine.models.reward_head import fresh_head
from stages.engine.models.source import LoadedModel
from stages.engine.models.transformer import Cells
from stages.engine.rollout.scoring import RewardScorer

pytestmark = pytest.mark.usefixtures("quickly_compiled")

GROUPS = [
    Group((70, 71, 72), [(80, 81, 2), (90, 2)]),
    Group((60, 61), [(2,)]),
    Group(tuple(range(40, 60)), [(95, 96, 97, 2), (98, 99, 2)]),
    Group((70, 71, 72, 73), [(85, 2), (86, 87, 88, 2)]),
]


@pytest.fixture(scope="module")
def weights(moved: Weights) -> Weights:
    return {**moved, **fresh_head(64, 4)}


@pytest.fixture(scope="module")
def scorer(tiny: LoadedModel, weights: Weights) -> RewardScorer:
    return RewardScorer(tiny.frozen, weights, group_size=2, micro_batch=2)


def test_a_reward_is_what_the_head_makes_of_a_responses_last_token(
    tiny: LoadedModel, moved: Weights, weights: Weights, scorer: RewardScorer
) -> None:
    longest = 24
    causal, positions = jnp.tri(longest, dtype=bool)[None], jnp.arange(longest)[None]

    @jax.jit
    def hidden(adapter: Weights, base: Cells, tokens: Array) -> Float[Array, "T D"]:
        return bind(tiny.frozen.graph, adapter, base)(tokens, positions, look_at_tokens(causal, positions))[0][0]

    def alone(ids: tuple[int, ...]) -> float:
        padded = jnp.array([[*ids, *[0] * (longest - len(ids))]])
        last = np.asarray(hidden(moved, tiny.frozen.base, padded))[len(ids) - 1].astype(np.float64)
        return float(last @ np.asarray(weights[REWARD_HEAD.path], np.float64)[:, 0])

    found = scorer.score(GROUPS)
    assert [len(rewards) for rewards in found] == [2, 1, 2, 2]
    for group, rewards in zip(GROUPS, found, strict=True):
        expected = [alone((*group.prompt, *response)) for response in group.responses]
        np.testing.assert_allclose(rewards, expected, atol=1e-5)


def test_a_reward_does_not_depend_on_what_else_is_scored(scorer: RewardScorer) -> None:
    together = scorer.score(GROUPS)
    for number, group in enumerate(GROUPS):
        np.testing.assert_array_equal(scorer.score([group])[0], together[number])
    for one, other in zip(scorer.score(GROUPS[::-1])[::-1], together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_to_score_gives_nothing(scorer: RewardScorer) -> None:
    assert scorer.score([]) == []
