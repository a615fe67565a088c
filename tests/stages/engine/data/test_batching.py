"""The batch layout: what each position is, what it may see and what it predicts."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.batching import Batch, Example, pack_examples, pack_groups, pad_rows, round_up, take_rows

ids = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def visible(batch: Batch, row: int, index: int) -> list[int]:
    """Inputs that the one at `index` attends to, by the layout's rule."""
    segment, branch = batch.segment_ids[row], batch.branch_ids[row]
    keys = range(index + 1)
    return [k for k in keys if segment[k] == segment[index] and branch[k] in (0, branch[index])]


def predictions(batch: Batch, row: int) -> list[tuple[list[int], list[int], int]]:
    """For each target: the tokens and positions that its source sees, and the target."""
    out: list[tuple[list[int], list[int], int]] = []
    for source, target, real in zip(batch.target_sources[row], batch.targets[row], batch.target_mask[row], strict=True):
        if real:
            seen = visible(batch, row, int(source))
            out.append((batch.tokens[row, seen].tolist(), batch.positions[row, seen].tolist(), int(target)))
    return out


def test_an_example_is_a_trunk_whose_last_token_is_a_target_only() -> None:
    batch = pack_examples([Example("a", (5, 6, 7), (8, 9))], width=6, num_targets=3)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 0, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 0, 0]]
    assert batch.branch_ids.tolist() == [[0] * 6]
    assert batch.target_sources.tolist() == [[2, 3, 0]]
    assert batch.targets.tolist() == [[8, 9, 0]]
    assert batch.target_mask.tolist() == [[True, True, False]]


def test_a_group_is_one_row_with_its_prompt_once() -> None:
    batch = pack_groups([[5, 6]], [[[7, 8, 2], [2], [9, 2]]], max_response=4, width=7)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 1, 1, 3, 0, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 1, 0, 0]]
    assert batch.target_sources.reshape(3, 4).tolist() == [[1, 2, 3, 0], [1, 0, 0, 0], [1, 4, 0, 0]]
    assert batch.targets.reshape(3, 4).tolist() == [[7, 8, 2, 0], [2, 0, 0, 0], [9, 2, 0, 0]]
    assert batch.target_mask.reshape(3, 4).sum(-1).tolist() == [3, 1, 2]


@given(st.lists(st.tuples(ids, st.lists(ids, min_size=3, max_size=3)), min_size=1, max_size=4))
def test_every_target_of_a_group_sees_exactly_its_prompt_and_its_own_response_so_far(
    groups: list[tuple[list[int], list[list[int]]]],
) -> None:
    batch = pack_groups([prompt for prompt, _ in groups], [responses for _, responses in groups], max_response=6)
    for row, (prompt, responses) in enumerate(groups):
        expected = [
            (prompt + response[:n], list(range(len(prompt) + n)), target)
            for response in responses
            for n, target in enumerate(response)
        ]
        assert predictions(batch, row) == expected


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=4))
def test_an_example_predicts_what_a_group_of_one_predicts(pairs: list[tuple[list[int], list[int]]]) -> None:
    examples = pack_examples([Example("x", tuple(prompt), tuple(response)) for prompt, response in pairs])
    groups = pack_groups([prompt for prompt, _ in pairs], [[response] for _, response in pairs], max_response=6)
    for row in range(len(pairs)):
        assert predictions(examples, row) == predictions(groups, row)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=4))
def test_padding_sees_no_token_and_no_token_sees_padding(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = pack_examples([Example("x", tuple(prompt), tuple(response)) for prompt, response in pairs])
    real = batch.segment_ids > 0
    for row in range(len(pairs)):
        for index in range(batch.tokens.shape[1]):
            seen = visible(batch, row, index)
            assert index in seen
            assert (real[row, seen] == real[row, index]).all()


def test_the_mask_comes_from_lengths_when_the_end_token_is_also_the_padding_id() -> None:
    batch = pack_examples([Example("a", (0, 0), (0, 0))], width=16, num_targets=16)
    assert batch.target_mask.sum() == 2
    assert batch.segment_ids.sum() == 3


def test_widths_are_multiples_of_sixteen_unless_given() -> None:
    batch = pack_examples([Example("a", (1,) * 16, (2, 3))])
    assert batch.tokens.shape == (1, 32)
    assert batch.targets.shape == (1, 16)
    assert [round_up(n) for n in (0, 1, 16, 17)] == [16, 16, 16, 32]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="row 0: 5 inputs and 3 targets do not fit 4 and 3"):
        pack_examples([Example("a", (1, 2, 3), (4, 5, 6))], width=4, num_targets=3)
    with pytest.raises(ValueError, match="4 targets do not fit"):
        pack_groups([[1]], [[[1, 2, 3, 4]]], max_response=3)
    with pytest.raises(ValueError, match=r"2 prompts with groups of \[1, 2\] responses"):
        pack_groups([[1], [2]], [[[1]], [[1], [2]]], max_response=3)


def test_empty_rows_have_no_target_and_rows_travel_whole() -> None:
    batch = pack_examples([Example("a", (5, 6), (7, 8)), Example("b", (3,), (4,))])
    padded = pad_rows(batch, 4)
    assert padded.tokens.shape == (4, 16)
    assert not padded.target_mask[2:].any()
    for field, original in zip(take_rows(padded, [1, 0]), batch, strict=True):
        np.testing.assert_array_equal(field, original[[1, 0]])
        assert field.dtype == original.dtype
    with pytest.raises(ValueError, match="2 rows does not fit 1"):
        pad_rows(batch, 1)


def test_the_mask_has_the_end_token_in_it_as_the_oracle_says() -> None:
    entries = json.loads((Path(__file__).parents[3] / "oracles" / "maths.json").read_text(encoding="utf-8"))
    (entry,) = (entry for entry in entries if entry["name"] == "completion_mask")
    ends = [[*row, entry["eos"]].index(entry["eos"]) + 1 for row in entry["tokens"]]
    responses = [row[:end] for row, end in zip(entry["tokens"], ends, strict=True)]
    batch = pack_groups([[9]], [responses], max_response=4)
    assert batch.target_mask.reshape(4, 4).astype(int).tolist() == entry["mask"]
