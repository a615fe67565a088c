"""Rows of tokens as fixed-shape arrays: one layout for training, scoring and groups of responses."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

WIDTH_MULTIPLE = 16
"""Widths are rounded up to a multiple of this, so that few shapes are compiled."""


class Branch(NamedTuple):
    """What goes on from a trunk: tokens that are given, then tokens to predict."""

    stem: Sequence[int]
    response: Sequence[int]


class Tree(NamedTuple):
    """One row: tokens that all branches share, and the branches, which do not see each other.

    An example is a tree whose only branch has no stem, a group of responses one whose branches have none, and examples
    with a common beginning are a tree whose stems are the rests of their prompts.
    """

    trunk: Sequence[int]
    branches: Sequence[Branch]


class Batch(NamedTuple):
    """B rows of T input tokens, and for each row the R targets that its outputs predict.

    A token attends to the same or an earlier index of its row with an equal segment id, whose branch id is 0 or its
    own. Padding lies at the end of a row, in segment 0, and attends to padding only.

    Attributes:
        tokens: input ids, 0 in padding.
        positions: position in the sequence that the token belongs to: branches all go on from their trunk's end.
        segment_ids: 0 in padding, else 1.
        branch_ids: 0 in the trunk, else the number of the branch, from 1.
        target_sources: index in the row of the input whose output predicts the target.
        targets: ids to predict, 0 where there is none.
        target_mask: where there is a target.
    """

    tokens: Int32[np.ndarray, "B T"]
    positions: Int32[np.ndarray, "B T"]
    segment_ids: Int32[np.ndarray, "B T"]
    branch_ids: Int32[np.ndarray, "B T"]
    target_sources: Int32[np.ndarray, "B R"]
    targets: Int32[np.ndarray, "B R"]
    target_mask: Bool[np.ndarray, "B R"]


def round_up(length: int, multiple: int = WIDTH_MULTIPLE) -> int:
    """The smallest multiple that is at least `length`, and at least one multiple."""
    return max(1, -(-length // multiple)) * multiple


def tree_width(tree: Tree) -> int:
    """Inputs of one row: no output follows the last token of a response, so that it is a target only."""
    return len(tree.trunk) + sum(len(branch.stem) + len(branch.response) - 1 for branch in tree.branches)


def pack_trees(trees: Sequence[Tree], *, max_response: int, width: int | None = None) -> Batch:
    """One tree a row.

    Targets are laid out as [branches * max_response], so that an array [B, branches, max_response] reshapes onto them.

    Args:
        trees: with the same number of branches each.
        max_response: targets of each branch.
        width: T; the widest tree rounded up when not given.

    Raises:
        ValueError: trees of different numbers of branches, an empty response, a response without a token before it, or
            a tree that does not fit the given sizes.
    """
    num_branches = len(trees[0].branches)
    if any(len(tree.branches) != num_branches for tree in trees):
        raise ValueError(f"trees of {sorted({len(tree.branches) for tree in trees})} branches in one batch")
    if width is None:
        width = round_up(max(map(tree_width, trees)))
    batch = _empty(len(trees), width, num_branches * max_response)
    for row, tree in enumerate(trees):
        _check_tree(row, tree, width, max_response)
        _put_inputs(batch, row, 0, tree.trunk, first_position=0, branch=0)
        start = len(tree.trunk)
        for index, (stem, response) in enumerate(tree.branches):
            given = [*stem, *response[:-1]]
            _put_inputs(batch, row, start, given, first_position=len(tree.trunk), branch=index + 1)
            # The first target follows the stem, or the trunk where there is no stem.
            before = start + len(stem) - 1 if stem else len(tree.trunk) - 1
            sources = [before, *range(start + len(stem), start + len(given))]
            _put_targets(batch, row, index * max_response, response, sources)
            start += len(given)
    return batch


def pad_rows(batch: Batch, num_rows: int) -> Batch:
    """The batch with empty rows after its own, up to `num_rows`; an empty row has no target.

    Raises:
        ValueError: the batch has more rows already.
    """
    missing = num_rows - batch.tokens.shape[0]
    if missing < 0:
        raise ValueError(f"a batch of {batch.tokens.shape[0]} rows does not fit {num_rows}")
    return Batch(*(np.pad(field, ((0, missing), (0, 0))) for field in batch))


def take_rows(batch: Batch, rows: Sequence[int] | slice) -> Batch:
    """Some rows of the batch, every field of them."""
    index = rows if isinstance(rows, slice) else np.asarray(rows, np.int64)
    return Batch(*(field[index] for field in batch))


def _empty(num_rows: int, width: int, num_targets: int) -> Batch:
    tokens, positions, segment_ids, branch_ids = (np.zeros((num_rows, width), np.int32) for _ in range(4))
    sources, targets = (np.zeros((num_rows, num_targets), np.int32) for _ in range(2))
    mask = np.zeros((num_rows, num_targets), np.bool_)
    return Batch(tokens, positions, segment_ids, branch_ids, sources, targets, mask)


def _check_tree(row: int, tree: Tree, width: int, max_response: int) -> None:
    inputs, longest = tree_width(tree), max(len(branch.response) for branch in tree.branches)
    if inputs > width or longest > max_response:
        raise ValueError(f"row {row}: {inputs} inputs and {longest} targets do not fit {width} and {max_response}")
    if not all(branch.response and (branch.stem or tree.trunk) for branch in tree.branches):
        raise ValueError(f"row {row}: a response is empty, or has no token before it")


def _put_inputs(batch: Batch, row: int, start: int, ids: Sequence[int], first_position: int, branch: int) -> None:
    here = slice(start, start + len(ids))
    batch.tokens[row, here] = ids
    batch.positions[row, here] = np.arange(first_position, first_position + len(ids))
    batch.segment_ids[row, here] = 1
    batch.branch_ids[row, here] = branch


def _put_targets(batch: Batch, row: int, at: int, ids: Sequence[int], sources: Sequence[int]) -> None:
    here = slice(at, at + len(ids))
    batch.target_sources[row, here] = sources
    batch.targets[row, here] = ids
    batch.target_mask[row, here] = True
