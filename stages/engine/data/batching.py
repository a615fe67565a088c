"""Rows of tokens as fixed-shape arrays: one layout for training, scoring and groups of responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

WIDTH_MULTIPLE = 16
"""Widths are rounded up to a multiple of this, so that few shapes are compiled."""


@dataclass(frozen=True)
class Example:
    """One prompt and one response, in token ids; the response ends with its end token.

    Attributes:
        id: the row's id, for messages.
    """

    id: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]


class Batch(NamedTuple):
    """B rows of T input tokens, and for each row the R targets that its outputs predict.

    A token attends to the same or an earlier index of its row with an equal segment id, whose branch id is 0 or its
    own. Padding lies at the end of a row, in segment 0, and attends to padding only.

    Attributes:
        tokens: input ids, 0 in padding.
        positions: position in the sequence that the token belongs to: branches all go on from their trunk's end.
        segment_ids: 0 in padding, else 1.
        branch_ids: 0 in the trunk, else the number of the response, from 1.
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


def example_width(prompt: Sequence[int], responses: Sequence[Sequence[int]]) -> int:
    """Inputs of one row: no output follows the last token of a response, so that it is a target only."""
    return len(prompt) + sum(len(response) - 1 for response in responses)


def pack_examples(examples: Sequence[Example], *, width: int | None = None, num_targets: int | None = None) -> Batch:
    """One example a row, as a trunk without branches.

    Args:
        examples: the rows.
        width: T; the longest row rounded up when not given.
        num_targets: R; the longest response rounded up when not given.

    Raises:
        ValueError: an example is longer than the given sizes.
    """
    if width is None:
        width = round_up(max(example_width(example.prompt, [example.response]) for example in examples))
    if num_targets is None:
        num_targets = round_up(max(len(example.response) for example in examples))
    batch = _empty(len(examples), width, num_targets)
    for row, example in enumerate(examples):
        trunk = (*example.prompt, *example.response[:-1])
        _check_fits(row, len(trunk), width, len(example.response), num_targets)
        _put_inputs(batch, row, 0, trunk, first_position=0, branch=0)
        _put_targets(batch, row, 0, example.response, len(example.prompt) - 1, len(example.prompt))
    return batch


def pack_groups(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[Sequence[int]]],
    *,
    max_response: int,
    width: int | None = None,
) -> Batch:
    """One group a row: its prompt once as the trunk, its G responses as branches.

    Targets are laid out as [G * max_response], so that an array of shape [B, G, max_response] reshapes onto them.

    Args:
        prompts: ids of each prompt.
        responses: for each prompt the same number of responses, each with its end token if it has one.
        max_response: targets of each response.
        width: T; the longest row rounded up when not given.

    Raises:
        ValueError: groups of different sizes, or a group longer than the given sizes.
    """
    group_size = len(responses[0])
    if any(len(group) != group_size for group in responses) or len(prompts) != len(responses):
        raise ValueError(
            f"{len(prompts)} prompts with groups of {sorted({len(group) for group in responses})} responses"
        )
    if width is None:
        width = round_up(max(map(example_width, prompts, responses)))
    batch = _empty(len(prompts), width, group_size * max_response)
    for row, (prompt, group) in enumerate(zip(prompts, responses, strict=True)):
        _check_fits(row, example_width(prompt, group), width, max(map(len, group)), max_response)
        _put_inputs(batch, row, 0, prompt, first_position=0, branch=0)
        start = len(prompt)
        for index, response in enumerate(group):
            _put_inputs(batch, row, start, response[:-1], first_position=len(prompt), branch=index + 1)
            _put_targets(batch, row, index * max_response, response, len(prompt) - 1, start)
            start += len(response) - 1
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


def _check_fits(row: int, inputs: int, width: int, response: int, num_targets: int) -> None:
    if inputs > width or response > num_targets:
        raise ValueError(f"row {row}: {inputs} inputs and {response} targets do not fit {width} and {num_targets}")


def _put_inputs(batch: Batch, row: int, start: int, ids: Sequence[int], first_position: int, branch: int) -> None:
    here = slice(start, start + len(ids))
    batch.tokens[row, here] = ids
    batch.positions[row, here] = np.arange(first_position, first_position + len(ids))
    batch.segment_ids[row, here] = 1
    batch.branch_ids[row, here] = branch


def _put_targets(batch: Batch, row: int, at: int, ids: Sequence[int], prompt_end: int, branch_start: int) -> None:
    """The first target is predicted by the prompt's last token, each further one by the target before it."""
    here = slice(at, at + len(ids))
    batch.target_sources[row, here] = [prompt_end, *range(branch_start, branch_start + len(ids) - 1)][: len(ids)]
    batch.targets[row, here] = ids
    batch.target_mask[row, here] = True
