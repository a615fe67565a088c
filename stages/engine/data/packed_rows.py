"""Rows of groups as arrays: pieces of tokens, laid end to end without a loop over tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from stages.engine.data.batching import ROOT, Batch, Group, Ids


class RowShape(NamedTuple):
    """What a row has room for.

    Attributes:
        prefix: tokens that the row's groups begin with and that stand there once; 0 where each has its own.
        width: T, inputs.
        num_targets: R, targets.
        group_size: G, most responses of a group.
    """

    prefix: int
    width: int
    num_targets: int
    group_size: int


class _Piece(NamedTuple):
    """Neighbouring inputs of one branch."""

    ids: Ids
    row: int
    start: int
    position: int
    segment: int
    branch: int


class _Response(NamedTuple):
    """A response as targets: its first follows the input `before`, the others those from `start` on."""

    ids: Ids
    learnt: Bool[np.ndarray, "_"]
    row: int
    before: int
    start: int
    sequence: int


def lay_out(
    rows: Sequence[Sequence[int]], groups: Sequence[Group], shape: RowShape
) -> tuple[Batch, Int32[np.ndarray, "B R"]]:
    """Rows that fit as a batch, and of each target the response that it is in.

    Args:
        rows: the groups of each, by number.
        groups: all of them.
        shape: of the rows.

    Returns:
        The batch, whose targets lie one after the other, and of each the number of its group in the row times G, plus
        that of its response; 0 where there is no target.
    """
    pieces: list[_Piece] = []
    responses: list[_Response] = []
    for row, members in enumerate(rows):
        end = shape.prefix
        if members and shape.prefix:
            pieces.append(_Piece(groups[members[0]].prompt[: shape.prefix], row, 0, 0, ROOT, 0))
        for place, number in enumerate(members):
            end = _cut(groups[number], shape, row, place, end, pieces, responses)
    return _arrays(len(rows), shape, pieces, responses)


def _cut(
    group: Group,
    shape: RowShape,
    row: int,
    place: int,
    end: int,
    pieces: list[_Piece],
    responses: list[_Response],
) -> int:
    """Adds the pieces of a group that begins at `end`, and returns where they end."""
    rest = group.prompt[shape.prefix :]
    segment = ROOT + 1 + place
    pieces.append(_Piece(rest, row, end, shape.prefix, segment, 0))
    end += len(rest)
    before = end - 1 if len(rest) else shape.prefix - 1
    for index, ids in enumerate(group.responses):
        learnt = np.ones(len(ids), np.bool_) if group.learnt is None else group.learnt[index]
        pieces.append(_Piece(ids[:-1], row, end, len(group.prompt), segment, index + 1))
        responses.append(_Response(ids, learnt, row, before, end, place * shape.group_size + index))
        end += len(ids) - 1
    return end


def _arrays(
    num_rows: int, shape: RowShape, pieces: Sequence[_Piece], responses: Sequence[_Response]
) -> tuple[Batch, Int32[np.ndarray, "B R"]]:
    _, rows, starts, positions, segments, branches = zip(*pieces, strict=True)
    ids, within, piece = _joined([one.ids for one in pieces])
    here = (np.array(rows) * shape.width + starts)[piece] + within
    inputs = (ids, np.array(positions)[piece] + within, np.array(segments)[piece], np.array(branches)[piece])

    _, learnt, rows, befores, starts, sequences = zip(*responses, strict=True)
    ids, within, piece = _joined([one.ids for one in responses])
    sources = np.where(within == 0, np.array(befores)[piece], np.array(starts)[piece] + within - 1)
    kept = np.concatenate(learnt)
    row = np.array(rows)[piece][kept]
    counts = np.bincount(row, minlength=num_rows)
    there = row * shape.num_targets + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    targets = (sources[kept], ids[kept], np.array(sequences)[piece][kept])

    sources, targets, sequences = (_filled((num_rows, shape.num_targets), there, values) for values in targets)
    mask = np.arange(shape.num_targets) < counts[:, None]
    tokens, positions, segments, branches = (_filled((num_rows, shape.width), here, values) for values in inputs)
    return Batch(tokens, positions, segments, branches, sources, targets, mask), sequences


def _joined(pieces: Sequence[Ids]) -> tuple[Int32[np.ndarray, "N"], Int64[np.ndarray, "N"], Int64[np.ndarray, "N"]]:
    """All ids, and of each its place in its piece and the number of the piece."""
    lengths = np.array([len(piece) for piece in pieces])
    piece = np.repeat(np.arange(len(pieces)), lengths)
    ids = np.concatenate([np.asarray(piece, np.int32) for piece in pieces])
    return ids, np.arange(len(ids)) - (np.cumsum(lengths) - lengths)[piece], piece


def _filled(
    shape: tuple[int, int], here: Int64[np.ndarray, "N"], values: Int32[np.ndarray, "N"] | Int64[np.ndarray, "N"]
) -> Int32[np.ndarray, "B L"]:
    """Zeros, but for the values at their places."""
    out = np.zeros(shape, np.int32)
    out.reshape(-1)[here] = values
    return out
