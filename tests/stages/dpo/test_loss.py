"""The loss of preferences and its gradient, however groups are packed and accumulated."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import jax
import numpy as np
import pytest
from fresh_adapter import attach_lora
from stage_trial import TINY

from stages.dpo.baseline import make_baseline, mismatched
from stages.dpo.config import DpoConfig
from stages.dpo.loss import PreferenceBatch, make_preference_loss
from stages.dpo.scoring import Candidates, make_response_scorer
from stages.dpo.task import make_task
from stages.engine.cluster.mesh import ALONE
from stages.engine.data.batching import Group
from stages.engine.data.chat import Chat
from stages.engine.data.packing import PackedBatch, Packing, spread
from stages.engine.data.preferences import Preferences
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights, split
from stages.engine.models.weights.load import load_decoder
from stages.engine.training.step import Gradient, add_gradients, loss_means, make_gradient
from stages.engine.training.task import Task

pytestmark = pytest.mark.usefixtures("quickly_compiled")

MASK = np.array([True, False, True])
PAIRS = Preferences(
    ["a", "b", "c", "d"],
    [
        Group((1, 90, 91, 92), [(60, 61, 2), (62, 2)], [np.ones(3, np.bool_), np.ones(2, np.bool_)]),
        Group((1, 90, 93), [(63, 64, 2), (2,)], [MASK, np.ones(1, np.bool_)]),
        Group((1, 94), [(65, 2), (60, 66, 67, 2)], [np.ones(2, np.bool_), np.ones(4, np.bool_)]),
        Group((1, 95, 96), [(68, 2), (69, 2)], [np.ones(2, np.bool_)] * 2),
    ],
    np.array([[True, False]] * 4),
    np.zeros(4, np.float32),
    0,
)
LABELLED = PAIRS._replace(
    groups=[Group(prompt, responses[:1], learnt and learnt[:1]) for prompt, responses, learnt in PAIRS.groups],
    desirable=np.array([[True], [False], [True], [True]]),
)
REFERENCE = np.array([[-20.0, -14.0], [-13.0, -7.5], [-11.0, -24.0], [-13.0, -15.0]], np.float32)
KINDS = [
    ("dpo", {"label_smoothing": 0.1}),
    ("robust", {"flip_rate": 0.2}),
    ("ipo", {"beta": 0.5}),
    ("hinge", {}),
    ("simpo", {}),
    ("orpo", {}),
    ("kto", {"desirable_weight": 1.5}),
    ("sft", {}),
]
WEIGHTS = [1.0, 0.5, 0.01, 0.3, 0.2, 0.7, 0.4, 0.6]


def config(loss: dict) -> DpoConfig:
    settings = {
        "model": {"lora": {"rank": 2, "alpha": 4.0}},
        "optimizer": {"learning_rate": 1e-3},
        "num_steps": 1,
        "batch_size": 4,
        "seed": 3,
        "loss": loss,
    }
    return DpoConfig.model_validate(settings, strict=False)


ALL = config(
    {
        "kind": "combination",
        "terms": [
            {"weight": weight, "loss": {"kind": kind, **settings}}
            for weight, (kind, settings) in zip(WEIGHTS, KINDS, strict=True)
        ],
    }
)
KTO = config({"kind": "kto", "undesirable_weight": 0.5})

# A group in each row, and one row that stays empty.
APART = Packing(num_shared=1, prefix=0, width=9, num_targets=16, max_groups=1, group_size=2, num_rows=5)
ONE_ROW = replace(APART, width=24, num_targets=32, max_groups=4, num_rows=1)


@pytest.fixture(scope="module")
def model() -> tuple[Frozen, Weights]:
    decoder = load_decoder(TINY)
    attach_lora(decoder, LoraConfig(rank=2, alpha=4), seed=3)
    frozen, adapter = split(decoder)
    return frozen, {name: value + 0.03 for name, value in adapter.items()}


def task_of(frozen: Frozen, preferences: Preferences, packing: Packing, given: DpoConfig) -> Task[PreferenceBatch]:
    size = packing.group_size

    def reference(rows: Sequence[int], batches: Sequence[PackedBatch]) -> list[np.ndarray]:
        return [spread(packed, REFERENCE[np.array(rows), :size]) for packed in batches]

    others = Candidates(mismatched(preferences.groups, 16), packing, 4)
    score = make_response_scorer(frozen, size, ALONE)
    baseline = make_baseline(score, reference, others, packing.num_rows, ALONE)
    loss = make_preference_loss(frozen.graph, given.terms, size)
    return make_task(preferences, packing, loss, reference, baseline, given, Chat(load_tokenizer(TINY)))


def gradient_of(
    model: tuple[Frozen, Weights], preferences: Preferences, packing: Packing, given: DpoConfig, num_parts: int
) -> Gradient:
    frozen, adapter = model
    task = task_of(frozen, preferences, packing, given)
    rows = range(len(preferences.groups))
    batches = task.complete(adapter, rows, 0, task.batches(rows, 0))
    assert len(batches) == num_parts
    gradient = make_gradient(task.loss)
    return reduce(add_gradients, [gradient(adapter, frozen.base, batch) for batch in batches])


def assert_same(found: Gradient, expected: Gradient) -> None:
    assert float(found.loss.denominator) == float(expected.loss.denominator) == 4
    np.testing.assert_allclose(found.loss.total, expected.loss.total, rtol=2e-6)
    for name, value in expected.loss.sums.items():
        np.testing.assert_allclose(found.loss.sums[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    for name, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=1e-5 * np.abs(value).max(), err_msg=name)


@pytest.fixture(scope="module")
def apart(model: tuple[Frozen, Weights]) -> Gradient:
    return gradient_of(model, PAIRS, APART, ALL, 1)


@pytest.fixture(scope="module")
def logps(model: tuple[Frozen, Weights]) -> np.ndarray:
    """Of each response alone, after its prompt."""
    frozen, adapter = model
    packing = replace(APART, max_groups=3, group_size=1, num_rows=6)
    alone = [
        Group(prompt, [ids], [mask])
        for prompt, responses, learnt in PAIRS.groups
        for ids, mask in zip(responses, learnt or (), strict=True)
    ]
    (packed,) = packing.pack(alone)
    return by_group(packed, make_response_scorer(frozen, 1, ALONE)(adapter, packed)).reshape(4, 2)


def by_group(packed: PackedBatch, sums: jax.Array) -> np.ndarray:
    there = packed.groups != 0
    values = np.zeros((packed.groups.max(), sums.shape[2]))
    values[packed.groups[there] - 1] = np.asarray(sums)[there]
    return values


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def log_odds(x: np.ndarray) -> np.ndarray:
    return np.log(np.exp(x) / (1 - np.exp(x)))


def test_the_loss_is_the_weighted_sum_of_its_terms(logps: np.ndarray, apart: Gradient) -> None:
    lengths = np.array([[3, 2], [2, 1], [2, 4], [2, 2]])
    ratios, means = logps - REFERENCE, logps / lengths
    margins = 0.1 * (ratios[:, 0] - ratios[:, 1])
    per_token = ratios / lengths
    baseline = float(apart.loss.sums["loss/kto_baseline"]) / 4
    signs = np.array([1.0, -1.0])
    kto = (np.array([1.5, 1.0]) / (1 + np.exp(0.1 * signs * (ratios - baseline)))).mean(1)
    terms = {
        "dpo": 0.9 * softplus(-margins) + 0.1 * softplus(margins),
        "robust": (0.8 * softplus(-margins) - 0.2 * softplus(margins)) / 0.6,
        "ipo": (per_token[:, 0] - per_token[:, 1] - 1.0) ** 2,
        "hinge": np.maximum(0, 1 - margins),
        "simpo": softplus(1.0 - 2.0 * (means[:, 0] - means[:, 1])),
        "orpo": -means[:, 0] + 0.1 * softplus(log_odds(means[:, 1]) - log_odds(means[:, 0])),
        "kto": kto,
        "sft": -logps[:, 0] * 4 / lengths[:, 0].sum(),
    }
    for kind, losses in terms.items():
        np.testing.assert_allclose(apart.loss.sums[f"loss/{kind}"], losses.sum(), rtol=2e-5, err_msg=kind)
    total = sum(weight * losses.sum() for weight, losses in zip(WEIGHTS, terms.values(), strict=True))
    np.testing.assert_allclose(apart.loss.total, total, rtol=2e-5)


def test_metrics_are_means_over_pairs_of_the_first_terms_rewards(logps: np.ndarray, apart: Gradient) -> None:
    means = loss_means([apart.loss])
    rewards = 0.1 * (logps - REFERENCE)
    expected = {
        "rewards/chosen": rewards[:, 0].mean(),
        "rewards/rejected": rewards[:, 1].mean(),
        "rewards/margin": (rewards[:, 0] - rewards[:, 1]).mean(),
        "rewards/accuracy": (rewards[:, 0] > rewards[:, 1]).mean(),
        "logps/chosen": logps[:, 0].mean(),
        "logps/rejected": logps[:, 1].mean(),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(means[name], value, rtol=2e-5, atol=1e-5, err_msg=name)


def test_the_baseline_is_the_mean_log_ratio_of_other_rows_responses(
    model: tuple[Frozen, Weights], apart: Gradient
) -> None:
    frozen, adapter = model
    (packed,) = APART.pack(mismatched(PAIRS.groups, 16))
    found = by_group(packed, make_response_scorer(frozen, 2, ALONE)(adapter, packed))
    expected = float((found - REFERENCE).mean())
    assert expected > 0.1
    np.testing.assert_allclose(float(apart.loss.sums["loss/kto_baseline"]) / 4, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("packing", "num_parts"),
    [
        pytest.param(replace(APART, prefix=1, width=12, max_groups=2, num_rows=1), 2, id="two micro-batches"),
        pytest.param(replace(APART, num_rows=1), 4, id="four micro-batches", marks=pytest.mark.slow),
        pytest.param(ONE_ROW, 1, id="one row", marks=pytest.mark.slow),
        pytest.param(replace(ONE_ROW, prefix=1), 1, id="one row over a common beginning", marks=pytest.mark.slow),
    ],
)
def test_packing_and_accumulation_change_neither_loss_nor_gradient(
    model: tuple[Frozen, Weights], apart: Gradient, packing: Packing, num_parts: int
) -> None:
    assert_same(gradient_of(model, PAIRS, packing, ALL, num_parts), apart)
    assert all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(apart))


def test_labelled_responses_are_learnt_from_one_by_one(model: tuple[Frozen, Weights], logps: np.ndarray) -> None:
    packing = replace(APART, width=10, max_groups=2, group_size=1, num_rows=1)
    loss = gradient_of(model, LABELLED, packing, KTO, 2).loss
    means, ratios = loss_means([loss]), logps[:, 0] - REFERENCE[:, 0]
    signs, weights = np.array([1, -1, 1, 1]), np.array([1, 0.5, 1, 1])
    losses = weights / (1 + np.exp(0.1 * signs * (ratios - float(means["loss/kto_baseline"]))))
    np.testing.assert_allclose(means["loss/total"], losses.mean(), rtol=2e-5)
    np.testing.assert_allclose(means["rewards/chosen"], 0.1 * ratios[[0, 2, 3]].mean(), rtol=2e-5)
    np.testing.assert_allclose(means["logps/rejected"], logps[1, 0], rtol=2e-5)
    assert "rewards/accuracy" not in means
