"""One update of a policy on a rollout."""

from collections.abc import Callable

import numpy as np
import pytest

from stages.engine.data.layout import choose_layout
from stages.engine.models.lora import Weights
from stages.engine.models.source import LoadedModel
from stages.engine.rl.learner import Learned, PolicyLearner
from stages.engine.rl.losses import PolicyLoss
from stages.engine.rl.rollouts import Prompt, Rollout
from stages.engine.rollout.native.sampler import Responses
from stages.engine.training.config import AdamWConfig
from stages.engine.training.optimizer import make_rule
from stages.engine.training.state import start_state

pytestmark = pytest.mark.usefixtures("quickly_compiled")

PROMPTS = [Prompt([1, 90, 91, 40 + n], "", f"row-{n}") for n in range(3)]
TOKENS = [[(60, 2), (61, 62, 2)], [(63, 2), (64, 2)], [(65, 66, 67), (68, 2)]]
LOGPROBS = -np.ones((3, 2, 3), np.float32)
ADVANTAGES = np.array([[0.7, -0.7], [9.0, 9.0], [-0.3, 0.3]], np.float32)
SETTINGS = PolicyLoss(
    max_response=3, temperature=1.0, clip_low=0.9, clip_high=50.0, kl_coef=0.0, aggregation="token_mean"
)
RULE = make_rule(AdamWConfig(learning_rate=1e-2), 1)

Learn = Callable[..., Learned]


@pytest.fixture(scope="module")
def learn(tiny: LoadedModel, moved: Weights) -> Learn:
    prompts = [prompt.ids for prompt in PROMPTS]
    layout = choose_layout(prompts, batch_size=1, micro_batch=1, group_size=2, max_response=3)
    learner = PolicyLearner(tiny.frozen, tiny.trained, SETTINGS, RULE, layout=layout)

    def learn(rows: list[int], tokens: list[list[tuple[int, ...]]] = TOKENS) -> Learned:
        rollout = Rollout(PROMPTS, Responses(tokens, LOGPROBS, np.ones((3, 2), bool)), np.zeros((3, 2), np.float32))
        start = start_state(moved, RULE, seed=0)
        return learner.learn(start.weights, start.optimizer, rollout, ADVANTAGES, np.array(rows))

    return learn


def test_groups_that_are_not_learned_from_have_no_influence(learn: Learn) -> None:
    others = [TOKENS[0], [(200, 201, 202), (203, 204, 205)], TOKENS[2]]
    one, other = learn([0, 2]), learn([0, 2], tokens=others)
    for name, value in one.weights.items():
        np.testing.assert_array_equal(value, other.weights[name])
    assert float(one.loss.denominator) == 2 + 3 + 3 + 2


def test_an_update_moves_every_part_of_the_adapter(learn: Learn, moved: Weights) -> None:
    learned = learn([0, 2])
    assert float(learned.grad_norm) > 0
    assert all(np.abs(learned.weights[name] - value).max() > 1e-3 for name, value in moved.items())
