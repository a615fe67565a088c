"""The policy's loss on a real model: against numpy, and whatever rows it is laid out in."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.data.batching import Group
from stages.engine.data.layout import Layout
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Weights, bind
from stages.engine.models.source import LoadedModel
from stages.engine.models.transformer import Cells
from stages.engine.rl.experience import make_experience
from stages.engine.rl.losses import PolicyBatch, PolicyLoss, make_policy_loss
from stages.engine.rollout.scoring import make_scorer
from stages.engine.training.step import Gradient, Loss, make_gradient

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ORACLES = Path(__file__).parents[3] / "oracles" / "maths.json"
TOLERANCE = 1e-5
PREFIX = (1, 90, 91, 92)
GROUPS = [
    Group((*PREFIX, 50, 51), [(60, 61, 62, 2), (63, 2), (64, 65, 2)]),
    Group((*PREFIX, 52), [(70, 2), (71, 72, 73), (74, 75, 76, 77)]),
]
NUM_RESPONSES, MAX_RESPONSE = 3, 4
LENGTHS = np.array([[len(response) for response in group.responses] for group in GROUPS])
MASK = np.arange(MAX_RESPONSE) < LENGTHS[:, :, None]
ADVANTAGES = np.array([[1.25, -0.5, -0.75], [0.4, -1.1, 0.7]], np.float32)
SETTINGS = PolicyLoss(
    max_response=MAX_RESPONSE,
    temperature=0.8,
    clip_low=0.1,
    clip_high=0.3,
    kl_coef=0.5,
    aggregation="token_mean",
)

APART = Layout(prefix=0, micro_batch=2, group_size=NUM_RESPONSES, max_response=MAX_RESPONSE, max_width=16)
TOGETHER = Layout(prefix=4, micro_batch=2, group_size=NUM_RESPONSES, max_response=MAX_RESPONSE, max_width=32)
WITH_AN_EMPTY_ROW = replace(APART, micro_batch=3)
A_ROW_A_RESPONSE = Layout(prefix=0, micro_batch=6, group_size=1, max_response=MAX_RESPONSE, max_width=16)


class Scores(NamedTuple):
    """Of the same tokens, [groups, responses, tokens]."""

    policy: np.ndarray
    old: np.ndarray
    reference: np.ndarray


@pytest.fixture(scope="module")
def scores(tiny: LoadedModel, moved: Weights) -> Scores:
    """By the policy and the reference, and old ones that move ratios to both sides of the clip."""
    score = make_scorer(tiny.frozen, SETTINGS.temperature)
    policy, reference = (np.asarray(score(w, APART.pack(GROUPS))).reshape(MASK.shape) for w in (moved, tiny.trained))
    noise = np.random.Generator(np.random.Philox(2)).normal(scale=0.3, size=MASK.shape)
    return Scores(policy, np.where(MASK, policy - noise, 0).astype(np.float32), reference)


AGGREGATIONS = ("token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum")


@pytest.fixture(scope="module")
def make_batch(scores: Scores) -> Callable[..., PolicyBatch]:
    """The groups in a layout, with advantages and old log-probabilities."""

    def make(
        layout: Layout, advantages: np.ndarray = ADVANTAGES, old: np.ndarray = scores.old, num_groups: int = 2
    ) -> PolicyBatch:
        groups = GROUPS[:num_groups]
        if layout.group_size == 1:
            groups = [Group(group.prompt, [response]) for group in groups for response in group.responses]
        shape = (len(groups), layout.group_size)
        of_groups = [field[:num_groups].reshape(*shape, -1) for field in (old, scores.reference, advantages)]
        (part,) = make_experience(groups, of_groups[0], of_groups[2][:, :, 0], layout)
        return PolicyBatch(part, jnp.asarray(layout.spread(of_groups[1])))

    return make


MakeBatch = Callable[..., PolicyBatch]


@pytest.fixture(scope="module")
def losses(tiny: LoadedModel, moved: Weights) -> Callable[[PolicyBatch], dict[str, Loss]]:
    """The loss by aggregation."""
    functions = {
        name: make_policy_loss(tiny.frozen.graph, replace(SETTINGS, aggregation=name)) for name in AGGREGATIONS
    }
    compiled = jax.jit(lambda w, base, batch: {name: function(w, base, batch) for name, function in functions.items()})
    return lambda batch: compiled(moved, tiny.frozen.base, batch)


Losses = Callable[[PolicyBatch], dict[str, Loss]]


@pytest.fixture(scope="module")
def gradient(tiny: LoadedModel, moved: Weights) -> Callable[[PolicyBatch], Gradient]:
    """Of the loss by token."""
    compiled = make_gradient(make_policy_loss(tiny.frozen.graph, SETTINGS))
    return lambda batch: compiled(moved, tiny.frozen.base, batch)


def written_out(scores: Scores, settings: PolicyLoss) -> dict[str, float]:
    """The loss in float64, token by token."""
    p, old, reference = (np.asarray(x, np.float64) for x in scores)
    advantages = np.broadcast_to(ADVANTAGES[:, :, None], p.shape)
    ratio = np.exp(p - old)
    clipped_ratio = np.clip(ratio, 1 - settings.clip_low, 1 + settings.clip_high)
    surrogate = np.where(advantages > 0, -advantages * np.minimum(ratio, clipped_ratio), 0)
    surrogate += np.where(advantages < 0, -advantages * np.maximum(ratio, clipped_ratio), 0)
    kl = np.exp(reference - p) - (reference - p) - 1
    parts = {"loss/policy": surrogate, "loss/kl": kl, "total": surrogate + settings.kl_coef * kl}
    per_response = {
        "token_mean": lambda x: (x * MASK).sum() / MASK.sum(),
        "sequence_mean_token_mean": lambda x: ((x * MASK).sum(-1) / LENGTHS).mean(),
        "sequence_mean_token_sum": lambda x: (x * MASK).sum(-1).mean(),
    }[settings.aggregation]
    return {name: float(per_response(part)) for name, part in parts.items()}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_loss_is_that_of_the_formulas_in_plain_numpy(
    losses: Losses, make_batch: MakeBatch, scores: Scores, aggregation: str
) -> None:
    loss = losses(make_batch(APART))[aggregation]
    expected = written_out(scores, replace(SETTINGS, aggregation=aggregation))
    np.testing.assert_allclose(loss.total / loss.denominator, expected["total"], rtol=TOLERANCE)
    for name in ("loss/policy", "loss/kl"):
        np.testing.assert_allclose(loss.sums[name] / loss.denominator, expected[name], rtol=TOLERANCE)


def test_clipped_tokens_are_counted_and_the_gap_to_the_sampler_is_measured(
    losses: Losses, make_batch: MakeBatch, scores: Scores
) -> None:
    sums = losses(make_batch(APART))["token_mean"].sums
    gap = np.abs(scores.policy - scores.old)
    np.testing.assert_allclose(sums["rollout/logprob_gap"], (gap * MASK).sum(), rtol=TOLERANCE)
    ratio, positive = np.exp(scores.policy - scores.old), ADVANTAGES[:, :, None] > 0
    outside = np.where(positive, ratio > 1 + SETTINGS.clip_high, ratio < 1 - SETTINGS.clip_low)
    assert 0 < float(sums["loss/clipped_rate"]) == (outside & MASK).sum() < MASK.sum()


def test_the_gradient_is_that_of_the_written_out_derivative_by_each_log_probability(
    gradient: Callable[[PolicyBatch], Gradient],
    make_batch: MakeBatch,
    tiny: LoadedModel,
    moved: Weights,
    scores: Scores,
) -> None:
    p, old, reference = (np.asarray(x, np.float64) for x in scores)
    advantages = np.broadcast_to(ADVANTAGES[:, :, None], p.shape)
    ratio = np.exp(p - old)
    free = np.where(advantages > 0, ratio < 1 + SETTINGS.clip_high, ratio > 1 - SETTINGS.clip_low)
    by_logprob = np.where(free, -advantages * ratio, 0) + SETTINGS.kl_coef * (1 - np.exp(reference - p))
    weights, batch = APART.spread((by_logprob * MASK).astype(np.float32)), APART.pack(GROUPS)

    def weighted(adapter: Weights, base: Cells) -> Float[Array, ""]:
        model = bind(tiny.frozen.graph, adapter, base)
        return (score_targets(model, batch, SETTINGS.temperature) * weights).sum()

    expected, found = jax.jit(jax.grad(weighted))(moved, tiny.frozen.base), gradient(make_batch(APART)).weights
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-4, err_msg=name)
        assert np.abs(value).max() > 1e-3


@pytest.mark.parametrize("layout", [TOGETHER, A_ROW_A_RESPONSE], ids=["one row for all", "a row a response"])
def test_loss_and_gradient_do_not_depend_on_the_rows_that_responses_lie_in(
    gradient: Callable[[PolicyBatch], Gradient], make_batch: MakeBatch, layout: Layout
) -> None:
    expected, found = gradient(make_batch(APART)), gradient(make_batch(layout))
    np.testing.assert_allclose(found.loss.total, expected.loss.total, rtol=1e-6)
    assert float(found.loss.denominator) == float(expected.loss.denominator)
    for name, value in expected.weights.items():
        largest = np.abs(value).max()
        np.testing.assert_allclose(found.weights[name], value, atol=5e-6 * largest, err_msg=name)


def test_an_empty_row_contributes_nothing_and_a_group_left_out_takes_its_kl_with_it(
    losses: Losses, make_batch: MakeBatch
) -> None:
    whole, first, second = (
        losses(make_batch(WITH_AN_EMPTY_ROW, advantages=advantages, num_groups=num_groups))
        for advantages, num_groups in (
            (ADVANTAGES, 2),
            (ADVANTAGES, 1),
            (ADVANTAGES * np.array([[1], [0]], np.float32), 2),
        )
    )
    apart = losses(make_batch(APART))
    for name in AGGREGATIONS:
        np.testing.assert_allclose(whole[name].total, apart[name].total, rtol=1e-6)
        assert float(whole[name].denominator) == float(apart[name].denominator) == float(second[name].denominator)
        # Without an advantage, but not left out, the second group's KL is still in the sum.
        assert float(second[name].total) - float(first[name].total) > 1e-3
    assert float(first["token_mean"].denominator) == MASK[0].sum()
    assert float(first["sequence_mean_token_mean"].denominator) == NUM_RESPONSES


def test_on_policy_nothing_is_clipped_and_the_loss_is_minus_the_advantages(
    losses: Losses, make_batch: MakeBatch, scores: Scores
) -> None:
    sums = losses(make_batch(APART, old=scores.policy))["token_mean"].sums
    assert float(sums["loss/clipped_rate"]) == 0
    np.testing.assert_allclose(sums["loss/policy"], -(ADVANTAGES * LENGTHS).sum(), rtol=TOLERANCE)


def test_responses_of_unequal_length_in_one_row_give_the_packed_oracles_loss(tiny: LoadedModel, moved: Weights) -> None:
    groups, advantages = [Group(PREFIX, [(60, 61, 62), (63,)])], np.array([[1.5, 3.0]], np.float32)
    layout = replace(APART, micro_batch=1, group_size=2, max_response=3)
    on_policy = np.asarray(make_scorer(tiny.frozen, 1.0)(moved, layout.pack(groups))).reshape(1, 2, 3)
    batch = PolicyBatch(make_experience(groups, on_policy, advantages, layout)[0], None)
    settings = PolicyLoss(3, 1.0, 0.2, 0.2, 0.0, "sequence_mean_token_mean")
    loss = jax.jit(make_policy_loss(tiny.frozen.graph, settings))(moved, tiny.frozen.base, batch)
    (oracle,) = (entry for entry in json.loads(ORACLES.read_text()) if entry["name"] == "packed_equals_unpacked")
    np.testing.assert_allclose(loss.total / loss.denominator, oracle["loss"], atol=TOLERANCE)
