"""The loss and its gradient, whatever rows examples lie in."""

from dataclasses import replace

import numpy as np
import pytest
from fresh_adapter import attach_lora
from stage_trial import TINY

from stages.engine.data.batching import Group
from stages.engine.data.layout import Layout
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights, split
from stages.engine.models.weights.load import load_decoder
from stages.engine.training.step import Gradient, make_gradient
from stages.sft.loss import make_sft_loss

pytestmark = pytest.mark.usefixtures("quickly_compiled")

EXAMPLES = [
    Group((1, 90, 91, 92, 50), [(60, 61, 2)]),
    Group((1, 90, 91, 92, 51, 52), [(62, 2)]),
    Group((1, 90, 91, 92, 53), [(2,)]),
]
NUM_TARGETS = 6
APART = Layout(prefix=0, micro_batch=3, group_size=1, max_response=3, max_width=16)


@pytest.fixture(scope="module")
def model() -> tuple[Frozen, Weights]:
    decoder = load_decoder(TINY)
    attach_lora(decoder, LoraConfig(rank=2, alpha=4), seed=3)
    frozen, adapter = split(decoder)
    return frozen, {name: value + 0.03 for name, value in adapter.items()}


@pytest.fixture(scope="module")
def apart(model: tuple[Frozen, Weights]) -> Gradient:
    frozen, adapter = model
    return make_gradient(make_sft_loss(frozen.graph))(adapter, frozen.base, APART.pack(EXAMPLES))


def test_the_loss_is_a_sum_over_targets_and_their_number(apart: Gradient) -> None:
    assert float(apart.loss.denominator) == NUM_TARGETS
    assert 3 * NUM_TARGETS < float(apart.loss.total) < 9 * NUM_TARGETS


@pytest.mark.parametrize(
    "layout",
    [replace(APART, prefix=4, max_width=32), replace(APART, micro_batch=4)],
    ids=["one row over the common beginning", "an empty row"],
)
def test_rows_shared_or_empty_change_neither_loss_nor_gradient(
    model: tuple[Frozen, Weights], apart: Gradient, layout: Layout
) -> None:
    frozen, adapter = model
    found = make_gradient(make_sft_loss(frozen.graph))(adapter, frozen.base, layout.pack(EXAMPLES))
    np.testing.assert_allclose(found.loss.total, apart.loss.total, rtol=1e-6)
    assert float(found.loss.denominator) == NUM_TARGETS
    for name, value in apart.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=5e-6 * np.abs(value).max(), err_msg=name)
