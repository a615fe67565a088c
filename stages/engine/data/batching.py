"""Rows of tokens as fixed-shape arrays: one layout for training, scoring and groups of responses."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Int32

WIDTH_MULTIPLE = 16
"""Widths are rounded up to a multiple of this, so that few shapes are compiled."""

ROOT = 1
"""Segment of what all groups of a row begin with; groups are numbered after it."""


Ids: TypeAlias = Sequence[int] | Int32[np.ndarray, "_"]
"""Token ids; arrays where there are many of them, which are smaller and faster to lay out."""


class Group(NamedTuple):
    """A prompt and responses to it, in token ids; an example is a group of one response.

    Attributes:
        prompt: what all responses follow.
        responses: each without what it follows.
        learnt: for each response which of its tokens are targets, as of a conversation those of the assistant; None
            for all.
    """

    prompt: Ids
    responses: Sequence[Ids]
    learnt: Sequence[Bool[np.ndarray, "_"]] | None = None


class PackedRow(NamedTuple):
    """Groups in one row, and what their prompts begin with, which stands there once.

    The prompts of the groups go on from the root: each is only the rest of its prompt.
    """

    root: Ids
    groups: Sequence[Group]


class Batch(NamedTuple):
    """B rows of T input tokens, and for each row the R targets that its outputs predict.

    A token attends to the same or an earlier index of its row, in its own segment or the root's, whose branch id is 0
    or its own. Padding lies at the end of a row, in segment 0, and attends to itself only.

    Attributes:
        tokens: input ids, 0 in padding.
        positions: position in the sequence that the token belongs to: prompts go on from the root, responses from
            their prompt.
        segment_ids: 0 in padding, `ROOT`, or the number of the group after that.
        branch_ids: 0 in root and prompts, else the number of the response in its group, from 1.
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


class TargetShape(NamedTuple):
    """How a row's R targets are laid out: an array of this shape reshapes onto them."""

    groups: int
    responses: int
    tokens: int


def round_up(length: int, multiple: int = WIDTH_MULTIPLE) -> int:
    """The smallest multiple that is at least `length`, and at least one multiple."""
    return max(1, -(-length // multiple)) * multiple


def row_width(row: PackedRow) -> int:
    """Inputs of a row: no output follows the last token of a response, so that it is a target only."""
    return len(row.root) + sum(map(group_width, row.groups))


def group_width(group: Group) -> int:
    """Inputs of a group."""
    return len(group.prompt) + sum(len(response) - 1 for response in group.responses)


def group_length(group: Group) -> int:
    """Tokens of the prompt and its longest response together."""
    return len(group.prompt) + max(map(len, group.responses))


def by_width(groups: Sequence[Group]) -> list[tuple[int, list[int]]]:
    """Numbers of groups by a width for a row of each, which depends on its own length only.

    It is one of four from a power of two to the next, so that few shapes are compiled and little of a row is empty.
    """
    members: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        inputs = group_width(group)
        width = round_up(round_up(inputs, 1 << max(0, inputs.bit_length() - 3)))
        members.setdefault(width, []).append(number)
    return sorted(members.items())


def pack_rows(rows: Sequence[PackedRow], shape: TargetShape, width: int) -> Batch:
    """Rows as arrays.

    Args:
        rows: a row may have fewer groups than `shape` has room for, also none.
        shape: room for the targets of each row.
        width: T.

    Raises:
        ValueError: a row does not fit, a response is empty, or a response has no token before it.
    """
    tokens, positions, segment_ids, branch_ids = (np.zeros((len(rows), width), np.int32) for _ in range(4))
    sources, targets = (np.zeros((len(rows), *shape), np.int32) for _ in range(2))
    mask = np.zeros((len(rows), *shape), np.bool_)

    def put(row: int, start: int, ids: Ids, position: int, segment: int, branch: int) -> int:
        here = slice(start, start + len(ids))
        tokens[row, here] = ids
        positions[row, here] = np.arange(position, position + len(ids))
        segment_ids[row, here] = segment
        branch_ids[row, here] = branch
        return here.stop

    for row, (root, groups) in enumerate(rows):
        _check(row, rows[row], shape, width)
        end = put(row, 0, root, 0, ROOT, 0)
        for number, (prompt, responses, learnt) in enumerate(groups):
            segment = ROOT + 1 + number
            end = put(row, end, prompt, len(root), segment, 0)
            # The first token of a response follows the prompt, or the root where that is the whole prompt.
            before = end - 1 if len(prompt) else len(root) - 1
            for index, response in enumerate(responses):
                start, end = end, put(row, end, response[:-1], len(root) + len(prompt), segment, index + 1)
                here = (row, number, index, slice(len(response)))
                sources[here] = [before, *range(start, end)]
                targets[here] = response
                mask[here] = True if learnt is None else learnt[index]
    flat = (len(rows), -1)
    return Batch(
        tokens, positions, segment_ids, branch_ids, sources.reshape(flat), targets.reshape(flat), mask.reshape(flat)
    )


def _check(row: int, packed: PackedRow, shape: TargetShape, width: int) -> None:
    responses = [len(group.responses) for group in packed.groups]
    lengths = [len(response) for group in packed.groups for response in group.responses]
    found = TargetShape(len(packed.groups), max(responses, default=0), max(lengths, default=0))
    if row_width(packed) > width or any(size > room for size, room in zip(found, shape, strict=True)):
        raise ValueError(
            f"row {row}: {row_width(packed)} inputs and targets of {tuple(found)} do not fit {width} and {tuple(shape)}"
        )
    if 0 in lengths or not all(len(group.prompt) or len(packed.root) for group in packed.groups):
        raise ValueError(f"row {row}: a response is empty, or has no token before it")
