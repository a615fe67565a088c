"""What a teacher makes of each target of a dataset, beside its rows: its likeliest tokens, and how likely each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from jaxtyping import Float32, Int32, Int64

from stages.engine.data.batching import Group
from stages.engine.data.packing import PackedBatch, count_targets
from stages.engine.data.records import read_descriptor
from stages.errors import UserError

IDS_FILE, LOGPROBS_FILE, CHECKS_FILE = "top_ids.npy", "top_logprobs.npy", "top_checks.npy"


class TopTokensBatch(NamedTuple):
    """Of each target of a micro-batch; what there is without a target is meaningless but finite.

    Attributes:
        ids: of the K likeliest tokens.
        logprobs: of each in nats, then that of all others together.
    """

    ids: Int32[np.ndarray, "B R K"]
    logprobs: Float32[np.ndarray, "B R K+1"]


@dataclass(frozen=True)
class TopTokensTable:
    """Of all N targets of a dataset, row after row; files are read where they are used.

    Attributes:
        ids: of the K likeliest tokens of each target.
        logprobs: of each in nats, then that of all others together.
        starts: of each row the index of its first target.
    """

    ids: Int32[np.ndarray, "N K"]
    logprobs: Float32[np.ndarray, "N K+1"]
    starts: Int64[np.ndarray, " P"]

    def take(self, rows: Sequence[int], packed: PackedBatch) -> TopTokensBatch:
        """Of a micro-batch that some rows, each a group of one response, were packed into."""
        index = target_indices(packed, self.starts[np.array(rows)])
        return TopTokensBatch(self.ids[index], self.logprobs[index])

    def put(self, rows: Sequence[int], packed: PackedBatch, found: TopTokensBatch) -> None:
        """The other way round."""
        index, mask = target_indices(packed, self.starts[np.array(rows)]), packed.batch.target_mask
        self.ids[index[mask]] = found.ids[mask]
        self.logprobs[index[mask]] = found.logprobs[mask]

    def save(self, folder: Path, groups: Sequence[Group]) -> None:
        """Writes the files; equal values give equal bytes."""
        np.save(folder / IDS_FILE, self.ids)
        np.save(folder / LOGPROBS_FILE, self.logprobs)
        np.save(folder / CHECKS_FILE, _checks(groups))


def empty_table(groups: Sequence[Group], num_top: int) -> TopTokensTable:
    """A table to be filled, for rows that are groups of one response each."""
    ends = np.cumsum([count_targets(group) for group in groups], dtype=np.int64)
    total = int(ends[-1])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    return TopTokensTable(np.zeros((total, num_top), np.int32), np.zeros((total, num_top + 1), np.float32), starts)


def target_indices(packed: PackedBatch, starts: Int64[np.ndarray, " P"]) -> Int64[np.ndarray, "B R"]:
    """Of each target its index among those of the whole dataset; 0 where there is none.

    Args:
        packed: groups of one response each; the targets of a group lie together.
        starts: of each group of the update the index of its first target.
    """
    mask = packed.batch.target_mask
    index = np.zeros(mask.shape, np.int64)
    for row, places in enumerate(packed.sequences):
        there = np.flatnonzero(mask[row])
        members, first, inverse = np.unique(places[there], return_index=True, return_inverse=True)
        within = np.arange(len(there)) - first[inverse]
        index[row, there] = starts[packed.groups[row, members] - 1][inverse] + within
    return index


def open_top_tokens(folder: Path, groups: Sequence[Group], temperature: float) -> TopTokensTable:
    """The table of a dataset that has one.

    Args:
        folder: of the dataset.
        groups: its rows in the ids of the model that shall learn.
        temperature: at which that model is compared.

    Raises:
        UserError: it is of another temperature, or rows have other tokens.
    """
    info = read_descriptor(folder).top_tokens
    assert info is not None
    if info.temperature != temperature:
        raise UserError(
            f"{folder}: the teacher's tokens were scored at temperature {info.temperature:g}, but this stage compares "
            f"at {temperature:g}: use the same in both stages"
        )
    found, expected = np.load(folder / CHECKS_FILE), _checks(groups)
    different = np.flatnonzero(found != expected) if len(found) == len(expected) else np.arange(len(expected))
    if len(different):
        raise UserError(
            f"{folder}: {len(different)} of {len(groups)} rows have other tokens than the teacher scored, the first "
            f"of them row {different[0]}: its tokenizer or chat template is not that of the trained model"
        )
    ids, logprobs = (np.load(folder / name, mmap_mode="r") for name in (IDS_FILE, LOGPROBS_FILE))
    return TopTokensTable(ids, logprobs, empty_table(groups, 0).starts)


def _checks(groups: Sequence[Group]) -> Int64[np.ndarray, " P"]:
    """A number for all tokens of each row and which of them are targets."""
    return np.array([_check(group) for group in groups], np.int64)


def _check(group: Group) -> int:
    (response,) = group.responses
    learnt = np.ones(len(response), np.bool_) if group.learnt is None else group.learnt[0]
    parts = (np.asarray(group.prompt, np.int32), np.asarray(response, np.int32), np.asarray(learnt, np.int32))
    check = 0
    for part in parts:
        check = crc32(part.tobytes(), crc32(np.int32(len(part)).tobytes(), check))
    return check
