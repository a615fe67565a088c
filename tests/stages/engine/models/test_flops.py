"""Operations counted by hand, and against those of the compiled program."""

import dataclasses

import pytest

from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.architecture import Architecture, Experts, RopeSettings, Window
from stages.engine.models.flops import attention_flops, linear_flops, training_flops

ARCH = Architecture(
    num_layers=2,
    width=8,
    hidden=12,
    num_heads=2,
    num_kv_heads=1,
    head_size=4,
    vocab_size=10,
    rope=RopeSettings(10_000.0),
    norm_epsilon=1e-6,
    tied_embeddings=True,
    max_positions=64,
)


@pytest.fixture
def batch() -> Batch:
    """Five inputs at positions 0 to 4, two targets, and padding."""
    return pack_rows([PackedRow((), [Group([1, 2, 3, 4], [[5, 6]])])], TargetShape(1, 1, 2), 16)


def test_linear_layers_count_for_tokens_and_the_output_for_targets(batch: Batch) -> None:
    attention = 8 * 8 + 2 * 8 * 4 + 8 * 8  # queries, keys and values, output
    assert linear_flops(ARCH, batch) == 2 * (2 * (attention + 3 * 8 * 12) * 5 + 8 * 10 * 2)


def test_a_token_meets_itself_and_what_is_before_it(batch: Batch) -> None:
    assert attention_flops(ARCH, batch) == 2 * (2 * 2 * 4 * 2) * (1 + 2 + 3 + 4 + 5)


def test_near_layers_meet_a_window_only(batch: Batch) -> None:
    arch = dataclasses.replace(ARCH, window=Window(size=2, period=2))
    assert attention_flops(arch, batch) == (2 * 2 * 4 * 2) * ((1 + 2 + 3 + 4 + 5) + (1 + 2 + 2 + 2 + 2))


def test_a_token_goes_through_its_experts_and_the_router(batch: Batch) -> None:
    experts = dataclasses.replace(ARCH, experts=Experts(count=4, per_token=2, hidden=6, normalized=True))
    difference = 2 * (3 * 6 * 2 + 4) - 2 * 3 * 12
    assert linear_flops(experts, batch) - linear_flops(ARCH, batch) == 2 * 8 * 5 * difference


def test_a_frozen_matrix_has_one_product_less(batch: Batch) -> None:
    whole, frozen = (training_flops(ARCH, batch, frozen=frozen) for frozen in (False, True))
    assert whole == 3 * (linear_flops(ARCH, batch) + attention_flops(ARCH, batch))
    assert whole - frozen == linear_flops(ARCH, batch)
