"""Loss and gradient of an update, whatever rows and micro-batches its groups lie in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from stages.engine.data.batching import Batch, Group
from stages.engine.data.packing import PackedBatch, Packing
from stages.engine.models.dropout import NumberedBatch
from stages.engine.models.lora import Weights
from stages.engine.models.source import LoadedModel
from stages.engine.training.numbering import token_numbers
from stages.engine.training.step import Gradient, add_gradients, make_gradient
from stages.sft.loss import make_sft_loss

pytestmark = pytest.mark.usefixtures("quickly_compiled")

PREFIX = (1, 90, 91, 92, 93, 94, 95, 96)


def make_groups() -> list[Group]:
    """Examples, a conversation and pairs, which all begin alike; one is as long as several others."""
    rng = np.random.default_rng(0)

    def ids(number: int) -> np.ndarray:
        return rng.integers(50, 120, number, np.int32)

    def prompt(number: int) -> np.ndarray:
        return np.array([*PREFIX, *ids(number)], np.int32)

    talk = np.array([True, True, False, False, False, True, True])
    return [
        Group(prompt(3), [ids(4)]),
        Group(prompt(2), [ids(7)], [talk]),
        Group(prompt(20), [ids(9)]),
        Group(prompt(1), [ids(5), ids(3)]),
        Group(prompt(4), [ids(6), ids(2)], [np.arange(6) > 2, np.ones(2, np.bool_)]),
        Group(prompt(5), [ids(1)]),
    ]


GROUPS = make_groups()
NUM_TARGETS = 4 + 4 + 9 + 8 + 5 + 1
ALONE = Packing(len(PREFIX), 0, width=48, num_targets=16, max_groups=6, group_size=2, num_rows=1)
TOGETHER = replace(ALONE, width=64, num_targets=24)
PACKINGS = {
    "a few rows": TOGETHER,
    "rows over the common beginning": replace(TOGETHER, prefix=len(PREFIX)),
    "rows of two devices": replace(TOGETHER, num_rows=2),
    "rows of eight devices": replace(TOGETHER, num_rows=8),
}


def one_by_one() -> list[PackedBatch]:
    """Each group in a micro-batch of its own."""
    parts = [(number, part) for number, group in enumerate(GROUPS, start=1) for part in ALONE.pack([group])]
    return [part._replace(groups=part.groups * number) for number, part in parts]


def gradient_of(
    model: LoadedModel, adapter: Weights, packing: Packing, parts: Sequence[PackedBatch], dropout: float
) -> Gradient:
    """Of the update with all groups."""
    gradient = make_gradient(make_sft_loss(model.frozen.graph, dropout=dropout, seed=7))
    given: list[Batch | NumberedBatch] = [
        part.batch if numbers is None else NumberedBatch(part.batch, numbers)
        for part in parts
        for numbers in [token_numbers(packing, part, 3 if dropout else None)]
    ]
    return reduce(add_gradients, [gradient(adapter, model.frozen.base, batch) for batch in given])


@pytest.fixture(scope="module")
def alone(tiny: LoadedModel, moved: Weights) -> Mapping[float, Gradient]:
    """The update one group at a time, without and with dropout."""
    return {dropout: gradient_of(tiny, moved, ALONE, one_by_one(), dropout) for dropout in (0.0, 0.3)}


@pytest.mark.parametrize(
    ("packing", "dropout"),
    [
        ("a few rows", 0.0),
        ("rows over the common beginning", 0.0),
        pytest.param("rows of two devices", 0.0, marks=pytest.mark.slow),
        ("rows over the common beginning", 0.3),
        pytest.param("rows of eight devices", 0.0, marks=pytest.mark.slow),
        pytest.param("rows of eight devices", 0.3, marks=pytest.mark.slow),
    ],
)
def test_loss_and_gradient_are_those_of_each_group_alone(
    tiny: LoadedModel, moved: Weights, alone: Mapping[float, Gradient], packing: str, dropout: float
) -> None:
    chosen, expected = PACKINGS[packing], alone[dropout]
    parts = chosen.pack(GROUPS)
    assert len(parts) * chosen.num_rows < len(GROUPS) or chosen.num_rows == 8
    found = gradient_of(tiny, moved, chosen, parts, dropout)
    assert float(found.loss.denominator) == float(expected.loss.denominator) == NUM_TARGETS
    np.testing.assert_allclose(found.loss.total, expected.loss.total, rtol=2e-6)
    for name, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=5e-6 * np.abs(value).max(), err_msg=name)


def test_dropout_changes_the_loss(alone: Mapping[float, Gradient]) -> None:
    assert abs(float(alone[0.0].loss.total - alone[0.3].loss.total)) > 1e-3
