"""An update's groups packed into rows, and rows into micro-batches that all have one shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, Shaped

from stages.engine.data.batching import ROOT, Batch, Group, group_width, round_up
from stages.engine.data.best_fit import best_fit
from stages.engine.data.layout import shared_prefix
from stages.engine.data.packed_rows import RowShape, lay_out
from stages.engine.data.row_search import RowSearch


class PackedBatch(NamedTuple):
    """A micro-batch of B rows, each with up to M groups of up to G responses.

    Attributes:
        batch: as a decoder reads it; a row's targets lie one after the other, those of a response together.
        sequences: of each target the response that it is in: the number of its group in the row, from 0, times G, plus
            that of its response; 0 where there is no target.
        groups: of each row the numbers of its groups in the update, from 1; 0 where there is none.
    """

    batch: Batch
    sequences: Int32[np.ndarray, "B R"]
    groups: Int32[np.ndarray, "B M"]


@dataclass(frozen=True)
class Packing:
    """The shape of a run's micro-batches.

    A micro-batch has equally many rows for each device, the first device's first. Which groups share a row changes
    neither loss nor gradient of an update, but for rounding.

    Attributes:
        num_shared: tokens that all prompts of the dataset begin with.
        prefix: as many, where each row has them once, as its root; or 0, where each group has its own.
        width: T, inputs of a row.
        num_targets: R, room for targets in a row.
        max_groups: M, most groups of a row.
        group_size: G, most responses of a group.
        num_rows: B, rows of a micro-batch, over all devices.
    """

    num_shared: int
    prefix: int
    width: int
    num_targets: int
    max_groups: int
    group_size: int
    num_rows: int

    def pack(self, groups: Sequence[Group]) -> list[PackedBatch]:
        """An update's groups, in as many micro-batches as they need; the same groups always give the same.

        Raises:
            ValueError: a group does not fit or begins otherwise, as those of another dataset may, or has no target.
        """
        for number, group in enumerate(groups):
            self._check(number, group, groups[0])
        inputs, targets = measure(groups)
        rows = best_fit(inputs - self.prefix, targets, self.width - self.prefix, self.num_targets)
        if max(map(len, rows), default=0) > self.max_groups:
            raise ValueError(f"{max(map(len, rows))} groups fit a row, which has room for {self.max_groups}")
        rows += [[] for _ in range(-len(rows) % self.num_rows)]
        if not rows:
            return []
        shape = RowShape(self.prefix, self.width, self.num_targets, self.group_size)
        batch, sequences = lay_out(rows, groups, shape)
        numbers = np.zeros((len(rows), self.max_groups), np.int32)
        for row, members in enumerate(rows):
            numbers[row, : len(members)] = np.array(members) + 1
        parts = [slice(start, start + self.num_rows) for start in range(0, len(rows), self.num_rows)]
        return [PackedBatch(Batch(*(field[part] for field in batch)), sequences[part], numbers[part]) for part in parts]

    def owners(self, packed: PackedBatch) -> Int32[np.ndarray, "B T"]:
        """For each token the number of its group in the update, which does not depend on how groups are packed.

        Returns:
            The number from 1; 0 for what all groups begin with. Padding has 0 or any number.
        """
        place = np.maximum(packed.batch.segment_ids - ROOT - 1, 0)
        own = np.take_along_axis(packed.groups, place, axis=1)
        return np.where(packed.batch.positions < self.num_shared, 0, own).astype(np.int32)

    def _check(self, number: int, group: Group, first: Group) -> None:
        if not len(group.prompt) or not 0 < len(group.responses) <= self.group_size:
            raise ValueError(
                f"group {number}: a prompt of {len(group.prompt)} tokens and {len(group.responses)} responses; "
                f"there must be a token and 1 to {self.group_size} responses"
            )
        if not all(len(response) for response in group.responses) or not count_targets(group):
            raise ValueError(f"group {number}: a response is empty, or none of its tokens is a target")
        if self.prefix and not np.array_equal(group.prompt[: self.prefix], first.prompt[: self.prefix]):
            raise ValueError(
                f"group {number}: it begins with other tokens than group 0, though {self.prefix} are shared"
            )


def choose_packing(groups: Sequence[Group], *, batch_size: int, micro_batch: int, num_devices: int = 1) -> Packing:
    """The shape in which a dataset's updates cost least.

    A micro-batch has no more inputs on a device than `micro_batch` of the longest group would have in rows of their
    own, and its rows are wide enough for any group. Rows are wider than that, and have the beginning that all prompts
    share once, where it saves inputs.

    Args:
        groups: the whole dataset.
        batch_size: groups of one update, which the devices share.
        micro_batch: groups that a device could take at once, were all as long as the longest.
        num_devices: that work together.
    """
    inputs, targets = measure(groups)
    num_shared = shared_prefix([group.prompt for group in groups])
    max_inputs = min(micro_batch, -(-batch_size // num_devices)) * round_up(int(inputs.max()))

    def search(prefix: int) -> RowSearch:
        return RowSearch(inputs - prefix, targets, prefix, max_inputs, batch_size, num_devices)

    choices = [(search(prefix).cheapest(), prefix) for prefix in sorted({0, num_shared})]
    chosen, prefix = min(choices)
    smallest = max(1, int((inputs - prefix).min()))
    return Packing(
        num_shared,
        prefix,
        chosen.width,
        chosen.num_targets,
        max_groups=min(batch_size, (chosen.width - prefix) // smallest, chosen.num_targets // int(targets.min())),
        group_size=max(len(group.responses) for group in groups),
        num_rows=num_devices * chosen.num_rows,
    )


def spread(packed: PackedBatch, values: Shaped[np.ndarray, "P *rest"]) -> Shaped[np.ndarray, "B M *rest"]:
    """Values of an update's P groups, where the groups lie in a micro-batch; 0 where there is none."""
    return np.concatenate([np.zeros_like(values[:1]), values])[packed.groups]


def measure(groups: Sequence[Group]) -> tuple[Int64[np.ndarray, " N"], Int64[np.ndarray, " N"]]:
    """Inputs and targets of each group."""
    return np.array(list(map(group_width, groups)), np.int64), np.array(list(map(count_targets, groups)), np.int64)


def count_targets(group: Group) -> int:
    """Tokens of a group that are learnt."""
    if group.learnt is None:
        return sum(map(len, group.responses))
    return sum(int(np.count_nonzero(learnt)) for learnt in group.learnt)


class Filling(NamedTuple):
    """What micro-batches hold, and what they have room for.

    Attributes:
        inputs: that are no padding.
        max_inputs: with padding.
        targets: to be learnt.
        max_targets: for which logits are computed.
    """

    inputs: int
    max_inputs: int
    targets: int
    max_targets: int

    @property
    def padding_share(self) -> float:
        """Share of all inputs that is padding; how well groups are packed is what it leaves of 1."""
        return 1 - self.inputs / self.max_inputs


def filling(batches: Sequence[Batch]) -> Filling:
    """Of an update's micro-batches."""
    return Filling(
        sum(int(np.count_nonzero(batch.segment_ids)) for batch in batches),
        sum(batch.segment_ids.size for batch in batches),
        sum(int(np.count_nonzero(batch.target_mask)) for batch in batches),
        sum(batch.target_mask.size for batch in batches),
    )
