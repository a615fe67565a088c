"""The batch layout: what each position is, what it may see and what it predicts."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.batching import Batch, Branch, Tree, pack_trees, pad_rows, round_up, take_rows, tree_width

NUM_BRANCHES = 3
ids = st.lists(st.integers(0, 9), min_size=1, max_size=6)
stems = st.lists(st.integers(0, 9), max_size=4)
branches = st.builds(Branch, stems, ids)
groups = st.builds(Tree, ids, st.lists(branches, min_size=NUM_BRANCHES, max_size=NUM_BRANCHES))


def visible(batch: Batch, row: int, index: int) -> list[int]:
    """Inputs that the one at `index` attends to, by the layout's rule."""
    segment, branch = batch.segment_ids[row], batch.branch_ids[row]
    keys = range(index + 1)
    return [k for k in keys if segment[k] == segment[index] and branch[k] in (0, branch[index])]


Prediction = tuple[list[int], list[int], int]
"""Tokens and positions that a target's source sees, and the target."""


def predictions(batch: Batch, row: int) -> list[Prediction]:
    out: list[Prediction] = []
    for source, target, real in zip(batch.target_sources[row], batch.targets[row], batch.target_mask[row], strict=True):
        if real:
            seen = visible(batch, row, int(source))
            out.append((batch.tokens[row, seen].tolist(), batch.positions[row, seen].tolist(), int(target)))
    return out


def wanted(tree: Tree) -> list[Prediction]:
    """Each branch alone: its trunk and stem, then its response token by token."""
    out: list[Prediction] = []
    for branch in tree.branches:
        given_ids = [*tree.trunk, *branch.stem]
        for n, target in enumerate(branch.response):
            seen = [*given_ids, *branch.response[:n]]
            out.append((seen, list(range(len(seen))), target))
    return out


def example(prompt: Sequence[int], response: Sequence[int]) -> Tree:
    return Tree(prompt, [Branch((), response)])


def test_an_example_is_a_trunk_and_a_response_whose_last_token_is_a_target_only() -> None:
    batch = pack_trees([example((5, 6, 7), (8, 9))], width=6, max_response=3)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 0, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 0, 1, 0, 0]]
    assert batch.target_sources.tolist() == [[2, 3, 0]]
    assert batch.targets.tolist() == [[8, 9, 0]]
    assert batch.target_mask.tolist() == [[True, True, False]]


def test_a_group_is_one_row_with_its_prompt_once() -> None:
    group = Tree([5, 6], [Branch((), [7, 8, 2]), Branch((), [2]), Branch((), [9, 2])])
    batch = pack_trees([group], max_response=4, width=7)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 1, 1, 3, 0, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 1, 0, 0]]
    assert batch.target_sources.reshape(3, 4).tolist() == [[1, 2, 3, 0], [1, 0, 0, 0], [1, 4, 0, 0]]
    assert batch.targets.reshape(3, 4).tolist() == [[7, 8, 2, 0], [2, 0, 0, 0], [9, 2, 0, 0]]
    assert batch.target_mask.reshape(3, 4).sum(-1).tolist() == [3, 1, 2]


def test_examples_with_a_common_beginning_are_one_row_with_the_beginning_once() -> None:
    tree = Tree([5, 6], [Branch([7], [8, 2]), Branch([3, 4], [2]), Branch((), [9, 2])])
    batch = pack_trees([tree], max_response=2, width=8)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 3, 4, 9, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2, 3, 2, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 1, 1, 2, 2, 3, 0]]
    assert batch.target_sources.reshape(3, 2).tolist() == [[2, 3], [5, 0], [1, 6]]
    assert batch.targets.reshape(3, 2).tolist() == [[8, 2], [2, 0], [9, 2]]
    assert tree_width(tree) == 7


@given(st.lists(groups, min_size=1, max_size=4))
def test_every_target_sees_exactly_its_trunk_its_stem_and_its_own_response_so_far(trees: list[Tree]) -> None:
    batch = pack_trees(trees, max_response=6)
    for row, tree in enumerate(trees):
        assert predictions(batch, row) == wanted(tree)


@given(groups)
def test_a_tree_predicts_what_its_branches_predict_in_rows_of_their_own(tree: Tree) -> None:
    alone = pack_trees([example((*tree.trunk, *stem), response) for stem, response in tree.branches], max_response=6)
    rows = [prediction for row in range(NUM_BRANCHES) for prediction in predictions(alone, row)]
    assert predictions(pack_trees([tree], max_response=6), 0) == rows


@given(st.lists(groups, min_size=1, max_size=4))
def test_targets_of_a_branch_lie_in_its_own_slots(trees: list[Tree]) -> None:
    batch = pack_trees(trees, max_response=6)
    shape = (len(trees), NUM_BRANCHES, 6)
    targets, mask = batch.targets.reshape(shape), batch.target_mask.reshape(shape)
    for row, tree in enumerate(trees):
        for index, branch in enumerate(tree.branches):
            size = len(branch.response)
            assert targets[row, index, :size].tolist() == branch.response
            assert mask[row, index].tolist() == [True] * size + [False] * (6 - size)


@given(st.lists(groups, min_size=1, max_size=4))
def test_padding_sees_no_token_and_no_token_sees_padding(trees: list[Tree]) -> None:
    batch = pack_trees(trees, max_response=6)
    real = batch.segment_ids > 0
    assert real.sum(axis=1).tolist() == [tree_width(tree) for tree in trees]
    for row in range(len(trees)):
        for index in range(batch.tokens.shape[1]):
            seen = visible(batch, row, index)
            assert index in seen
            assert (real[row, seen] == real[row, index]).all()


def test_the_mask_comes_from_lengths_when_the_end_token_is_also_the_padding_id() -> None:
    batch = pack_trees([example((0, 0), (0, 0))], width=16, max_response=16)
    assert batch.target_mask.sum() == 2
    assert batch.segment_ids.sum() == 3


def test_widths_are_multiples_of_sixteen_unless_given() -> None:
    batch = pack_trees([example((1,) * 16, (2, 3))], max_response=2)
    assert batch.tokens.shape == (1, 32)
    assert batch.targets.shape == (1, 2)
    assert [round_up(n) for n in (0, 1, 16, 17)] == [16, 16, 16, 32]


@pytest.mark.parametrize(
    ("trees", "max_response", "message"),
    [
        ([example((1,), (2,)), example((1, 2, 3), (4, 5, 6))], 3, "row 1: 5 inputs and 3 targets do not fit 4 and 3"),
        ([example((1,), (1, 2, 3, 4))], 3, "row 0: 4 inputs and 4 targets do not fit 4 and 3"),
        ([Tree([1], [Branch((), [1])]), Tree([1], [Branch((), [1])] * 2)], 3, r"trees of \[1, 2\] branches"),
        ([example((1,), ())], 3, "row 0: a response is empty, or has no token before it"),
        ([example((), (1,))], 3, "row 0: a response is empty, or has no token before it"),
        ([Tree((), [Branch((1,), (2,)), Branch((), (2,))])], 3, "row 0: a response is empty, or has no token before"),
    ],
)
def test_what_does_not_fit_is_refused(trees: list[Tree], max_response: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_trees(trees, width=4, max_response=max_response)


def test_a_tree_without_a_trunk_holds_examples_that_share_nothing() -> None:
    batch = pack_trees([Tree((), [Branch((5, 6), (7,)), Branch((8,), (9, 2))])], max_response=2)
    assert predictions(batch, 0) == [([5, 6], [0, 1], 7), ([8], [0], 9), ([8, 9], [0, 1], 2)]


def test_empty_rows_have_no_target_and_rows_travel_whole() -> None:
    batch = pack_trees([example((5, 6), (7, 8)), example((3,), (4,))], max_response=2)
    padded = pad_rows(batch, 4)
    assert padded.tokens.shape == (4, 16)
    assert not padded.target_mask[2:].any()
    for rows in ([1, 0], slice(1, 3)):
        for field, original in zip(take_rows(padded, rows), padded, strict=True):
            np.testing.assert_array_equal(field, original[rows])
            assert field.dtype == original.dtype
    with pytest.raises(ValueError, match="2 rows does not fit 1"):
        pad_rows(batch, 1)


def test_the_mask_has_the_end_token_in_it_as_the_oracle_says() -> None:
    entries = json.loads((Path(__file__).parents[3] / "oracles" / "maths.json").read_text(encoding="utf-8"))
    (entry,) = (entry for entry in entries if entry["name"] == "completion_mask")
    ends = [[*row, entry["eos"]].index(entry["eos"]) + 1 for row in entry["tokens"]]
    responses = [row[:end] for row, end in zip(entry["tokens"], ends, strict=True)]
    batch = pack_trees([Tree([9], [Branch((), response) for response in responses])], max_response=4)
    assert batch.target_mask.reshape(4, 4).astype(int).tolist() == entry["mask"]
