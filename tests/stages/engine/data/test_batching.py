"""The batch layout: what each position is, what it may see and what it predicts."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.batching import ROOT, Batch, Group, PackedRow, TargetShape, pack_rows, round_up, row_width

SHAPE = TargetShape(groups=3, responses=2, tokens=6)
ids = st.lists(st.integers(0, 9), min_size=1, max_size=6)
rests = st.lists(st.integers(0, 9), max_size=4)
groups = st.tuples(rests, st.lists(ids, min_size=1, max_size=2)).map(lambda fields: Group(*fields))
packed_rows = st.tuples(ids, st.lists(groups, max_size=3)).map(lambda fields: PackedRow(*fields))


def pack(rows: Sequence[PackedRow], shape: TargetShape = SHAPE) -> Batch:
    return pack_rows(rows, shape, round_up(max(map(row_width, rows))))


def visible(batch: Batch, row: int, index: int) -> list[int]:
    """Inputs that the one at `index` attends to, by the layout's rule."""
    segment, branch = batch.segment_ids[row], batch.branch_ids[row]
    if segment[index] == 0:
        return [index]
    keys = range(index + 1)
    return [k for k in keys if segment[k] in (ROOT, segment[index]) and branch[k] in (0, branch[index])]


Prediction = tuple[list[int], list[int], int]
"""Tokens and positions that a target's source sees, and the target."""


def predictions(batch: Batch, row: int) -> list[Prediction]:
    out: list[Prediction] = []
    for source, target, real in zip(batch.target_sources[row], batch.targets[row], batch.target_mask[row], strict=True):
        if real:
            seen = visible(batch, row, int(source))
            out.append((batch.tokens[row, seen].tolist(), batch.positions[row, seen].tolist(), int(target)))
    return out


def wanted(row: PackedRow) -> list[Prediction]:
    """Each response alone: root and prompt, then token by token."""
    out: list[Prediction] = []
    for prompt, responses, learnt in row.groups:
        for index, response in enumerate(responses):
            for n, target in enumerate(response):
                seen = [*row.root, *prompt, *response[:n]]
                if learnt is None or learnt[index][n]:
                    out.append((seen, list(range(len(seen))), target))
    return out


def test_an_example_ends_before_its_last_token_which_is_a_target_only() -> None:
    batch = pack_rows([PackedRow((), [Group((5, 6, 7), [(8, 9)])])], TargetShape(1, 1, 3), width=6)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 0, 0]]
    assert batch.segment_ids.tolist() == [[2, 2, 2, 2, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 0, 1, 0, 0]]
    assert batch.target_sources.tolist() == [[2, 3, 0]]
    assert batch.targets.tolist() == [[8, 9, 0]]
    assert batch.target_mask.tolist() == [[True, True, False]]


def test_a_group_has_its_prompt_once() -> None:
    group = Group([5, 6], [[7, 8, 2], [2], [9, 2]])
    batch = pack_rows([PackedRow((), [group])], TargetShape(1, 3, 4), width=7)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 1, 1, 3, 0, 0]]
    assert batch.target_sources.reshape(3, 4).tolist() == [[1, 2, 3, 0], [1, 0, 0, 0], [1, 4, 0, 0]]
    assert batch.targets.reshape(3, 4).tolist() == [[7, 8, 2, 0], [2, 0, 0, 0], [9, 2, 0, 0]]
    assert batch.target_mask.reshape(3, 4).sum(-1).tolist() == [3, 1, 2]


def test_groups_with_a_common_beginning_have_it_once() -> None:
    row = PackedRow([5, 6], [Group([7], [[8, 2], [3]]), Group([], [[9, 2]])])
    batch = pack_rows([row], TargetShape(3, 2, 2), width=8)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 0, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2, 0, 0, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 2, 2, 3, 0, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0]]
    shape = (3, 2, 2)
    assert batch.target_sources.reshape(shape).tolist() == [[[2, 3], [2, 0]], [[1, 4], [0, 0]], [[0, 0], [0, 0]]]
    assert batch.targets.reshape(shape).tolist() == [[[8, 2], [3, 0]], [[9, 2], [0, 0]], [[0, 0], [0, 0]]]
    assert batch.target_mask.reshape(shape).sum(-1).tolist() == [[2, 1], [2, 0], [0, 0]]
    assert row_width(row) == 5


@given(st.lists(packed_rows, min_size=1, max_size=4))
def test_every_target_sees_exactly_its_root_its_prompt_and_its_own_response_so_far(rows: list[PackedRow]) -> None:
    batch = pack(rows)
    for row, packed in enumerate(rows):
        assert predictions(batch, row) == wanted(packed)


@given(packed_rows)
def test_a_row_predicts_what_its_responses_predict_in_rows_of_their_own(row: PackedRow) -> None:
    alone = [
        PackedRow((), [Group((*row.root, *group.prompt), [response])])
        for group in row.groups
        for response in group.responses
    ]
    apart = [prediction for at in range(len(alone)) for prediction in predictions(pack(alone), at)]
    assert predictions(pack([row]), 0) == apart


@given(st.lists(packed_rows, min_size=1, max_size=4))
def test_targets_of_a_response_lie_in_its_own_slots(rows: list[PackedRow]) -> None:
    batch = pack(rows)
    targets, mask = (field.reshape(len(rows), *SHAPE) for field in (batch.targets, batch.target_mask))
    total = 0
    for row, packed in enumerate(rows):
        for number, group in enumerate(packed.groups):
            for index, response in enumerate(group.responses):
                size = len(response)
                assert targets[row, number, index, :size].tolist() == response
                assert mask[row, number, index].tolist() == [True] * size + [False] * (6 - size)
                total += size
    assert mask.sum() == total


@given(st.lists(packed_rows, min_size=1, max_size=4))
def test_padding_lies_at_the_end_and_no_token_sees_it(rows: list[PackedRow]) -> None:
    batch = pack(rows)
    for row, packed in enumerate(rows):
        real = batch.segment_ids[row] > 0
        assert real.tolist() == [True] * row_width(packed) + [False] * (len(real) - row_width(packed))
        for index in range(row_width(packed)):
            assert real[visible(batch, row, index)].all()


def test_the_mask_comes_from_lengths_when_the_end_token_is_also_the_padding_id() -> None:
    batch = pack([PackedRow((), [Group((0, 0), [(0, 0)])])])
    assert batch.target_mask.sum() == 2
    assert (batch.segment_ids > 0).sum() == 3


def test_a_row_without_groups_has_no_target() -> None:
    batch = pack([PackedRow((), ()), PackedRow((), [Group((1,), [(2,)])])])
    assert batch.target_mask.sum(axis=1).tolist() == [0, 1]


def test_widths_are_rounded_up() -> None:
    assert [round_up(n) for n in (0, 1, 16, 17)] == [16, 16, 16, 32]
    assert round_up(50, 48) == 96


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PackedRow((), [Group((1, 2, 3), [(4, 5, 6)])]), r"row 1: 5 inputs and targets of \(1, 1, 3\) do not fit 4"),
        (PackedRow((), [Group((1,), [(1, 2, 3, 4)])]), r"targets of \(1, 1, 4\) do not fit 4 and \(2, 2, 3\)"),
        (PackedRow((1,), [Group((), [(2,)] * 3)]), r"targets of \(1, 3, 1\) do not fit"),
        (PackedRow((1,), [Group((), [(2,)])] * 3), r"targets of \(3, 1, 1\) do not fit"),
        (PackedRow((1,), [Group((1,), [()])]), "row 1: a response is empty, or has no token before it"),
        (PackedRow((), [Group((), [(1,)])]), "row 1: a response is empty, or has no token before it"),
    ],
)
def test_what_does_not_fit_is_refused(row: PackedRow, message: str) -> None:
    fitting = PackedRow((), [Group((1,), [(2,)])])
    with pytest.raises(ValueError, match=message):
        pack_rows([fitting, row], TargetShape(2, 2, 3), width=4)


def test_the_mask_has_the_end_token_in_it_as_the_oracle_says() -> None:
    entries = json.loads((Path(__file__).parents[3] / "oracles" / "maths.json").read_text(encoding="utf-8"))
    (entry,) = (entry for entry in entries if entry["name"] == "completion_mask")
    ends = [[*row, entry["eos"]].index(entry["eos"]) + 1 for row in entry["tokens"]]
    responses = [row[:end] for row, end in zip(entry["tokens"], ends, strict=True)]
    batch = pack([PackedRow((9,), [Group((), responses)])], TargetShape(1, 4, 4))
    assert batch.target_mask.reshape(4, 4).astype(int).tolist() == entry["mask"]


def test_of_a_conversation_only_what_is_learnt_is_a_target() -> None:
    learnt = [np.array([True, True, False, False, True]), np.array([False, True])]
    row = PackedRow((), [Group([5], [np.array([6, 2, 7, 8, 2], np.int32), [9, 2]], learnt)])
    batch = pack([row])
    assert predictions(batch, 0) == wanted(row)
    assert [target for *_, target in wanted(row)] == [6, 2, 2, 2]
