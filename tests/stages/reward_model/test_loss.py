"""The loss on packed pairs: its value by what the maths says of rewards, its gradient in any packing."""

from collections.abc import Callable
from functools import reduce

import jax
import numpy as np
import pytest
from fresh_adapter import attach_lora
from stage_trial import TINY

from stages.engine.data.batching import Group
from stages.engine.data.packing import Packing, choose_packing, spread
from stages.engine.data.scored import scored_as_wholes
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights, split
from stages.engine.models.reward_head import fresh_head
from stages.engine.models.weights.load import load_decoder
from stages.engine.rollout.scoring import RewardScorer
from stages.engine.training.step import Gradient, add_gradients, make_gradient
from stages.reward_model.loss import RewardBatch, make_reward_loss

pytestmark = pytest.mark.usefixtures("quickly_compiled")

COEF = 0.3
PAIRS = [
    Group((70, 71, 72), [(80, 81, 2), (90, 2)]),
    Group((60, 61), [(2,), (95, 96, 97, 98, 2)]),
    Group((70, 73, 74, 75), [(85, 2), (86, 87, 88, 2)]),
]
MARGINS = np.array([0.0, 0.7, 1.5], np.float32)
Run = Callable[[list[int]], Gradient]


@pytest.fixture(scope="module")
def model() -> tuple[Frozen, Weights]:
    """The tiny model with an adapter and a head of which no part is zero."""
    decoder = load_decoder(TINY)
    attach_lora(decoder, LoraConfig(rank=2, alpha=4), seed=3)
    frozen, adapter = split(decoder)
    return frozen, {**{name: value + 0.03 for name, value in adapter.items()}, **fresh_head(64, 4)}


@pytest.fixture(scope="module")
def packing() -> Packing:
    return choose_packing([scored_as_wholes(pair) for pair in PAIRS], batch_size=3, micro_batch=3)


@pytest.fixture(scope="module")
def run(model: tuple[Frozen, Weights], packing: Packing) -> Run:
    frozen, weights = model
    gradient = make_gradient(make_reward_loss(frozen.graph, COEF))

    def run(rows: list[int]) -> Gradient:
        parts = packing.pack([scored_as_wholes(PAIRS[row]) for row in rows])
        given = [RewardBatch(part, spread(part, MARGINS[rows]), None) for part in parts]
        return reduce(add_gradients, (gradient(weights, frozen.base, batch) for batch in given))

    return run


def test_it_is_the_sum_over_pairs_of_what_their_rewards_cost(model: tuple[Frozen, Weights], run: Run) -> None:
    scorer = RewardScorer(*model, group_size=2, micro_batch=3)
    chosen, rejected = np.stack(scorer.score(PAIRS)).astype(np.float64).T
    found = run([0, 1, 2]).loss
    preference = np.logaddexp(0, rejected + MARGINS - chosen).sum()
    centred = ((chosen + rejected) ** 2).sum()
    assert float(found.denominator) == 3
    assert float(found.total) == pytest.approx(preference + COEF * centred, rel=1e-5)
    assert {name: float(value) for name, value in found.sums.items()} == pytest.approx(
        {
            "loss/preference": preference,
            "loss/centering": centred,
            "rewards/chosen": chosen.sum(),
            "rewards/rejected": rejected.sum(),
            "rewards/margin": (chosen - rejected).sum(),
            "rewards/accuracy": (chosen > rejected).sum(),
        },
        rel=1e-4,
        abs=1e-5,
    )


def test_pairs_that_share_rows_have_the_gradient_of_pairs_alone(run: Run) -> None:
    together, alone = run([0, 1, 2]), reduce(add_gradients, (run([row]) for row in range(3)))
    assert all(np.abs(value).max() > 0 for value in together.weights.values())
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=2e-5), together, alone)
