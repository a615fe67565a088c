"""How groups of a dataset are laid out in rows, chosen once for all its micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32

from stages.engine.data.batching import ROOT, Batch, Group, Ids, PackedRow, TargetShape, pack_rows, round_up, row_width

_NUM_WIDTHS = 8
"""Rows follow their content in at most so many widths: each is compiled once."""


def shared_prefix(prompts: Sequence[Ids]) -> int:
    """Tokens with which all prompts begin, as system messages do; at least one token of each prompt is left over."""
    longest = min(map(len, prompts)) - 1
    heads = [np.asarray(prompt[:longest], np.int32).tobytes() for prompt in prompts]
    # What the first and the last in the order of bytes begin with, all between them begin with too.
    first, last = (np.frombuffer(head, np.int32) for head in (min(heads), max(heads)))
    return int(np.argmin([*(first == last), False]))


@dataclass(frozen=True)
class Layout:
    """The rows of a micro-batch.

    Where prompts begin alike, a micro-batch is one row over their common beginning, which is then computed once.
    Otherwise it has a row for each group. Both give the same loss and gradient. Several devices have a micro-batch
    each, side by side: equally many rows, the first device's first.

    Attributes:
        prefix: tokens of the common beginning; 0 for a row for each group.
        micro_batch: groups of a micro-batch, on each device.
        group_size: responses of a group.
        max_response: longest response.
        max_width: inputs of the widest row that there can be.
        num_devices: which share the groups evenly.
    """

    prefix: int
    micro_batch: int
    group_size: int
    max_response: int
    max_width: int
    num_devices: int = 1

    def pack(self, groups: Sequence[Group]) -> Batch:
        """A micro-batch for each device; what they lack to their full size has no targets.

        Raises:
            ValueError: groups of another dataset, which do not fit.
        """
        rows = [row for share in self._shares(len(groups)) for row in self._rows(groups[share])]
        shape = TargetShape(self.micro_batch if self.prefix else 1, self.group_size, self.max_response)
        step = round_up(-(-self.max_width // _NUM_WIDTHS))
        return pack_rows(rows, shape, round_up(max(map(row_width, rows)), step))

    def spread(self, values: Float32[np.ndarray, "P G R"]) -> Float32[np.ndarray, "B S"]:
        """Values of each token of a micro-batch's responses, laid out as its targets."""
        shares = [values[share] for share in self._shares(len(values))]
        padded = [np.pad(share, ((0, self.micro_batch - len(share)), (0, 0), (0, 0))) for share in shares]
        return np.concatenate(padded).reshape(self.num_devices * (1 if self.prefix else self.micro_batch), -1)

    def owners(self, groups: slice, num_groups: int, batch: Batch, num_shared: int) -> Int32[np.ndarray, "B T"]:
        """For each token of a batch the number of its group, which does not depend on how groups are packed.

        Args:
            groups: one of `parts`, which was packed.
            num_groups: of which they are parts.
            batch: the packed groups.
            num_shared: tokens that all groups begin with.

        Returns:
            The number from 1; 0 for what all groups begin with. Padding has any number.
        """
        rows = 1 if self.prefix else self.micro_batch
        start, stop, _ = groups.indices(num_groups)
        firsts = [start + share.start + row for share in self._shares(stop - start) for row in range(rows)]
        own = np.array(firsts, np.int32)[:, None] + batch.segment_ids - ROOT
        return np.where(batch.positions < num_shared, 0, own).astype(np.int32)

    def parts(self, num_groups: int) -> list[slice]:
        """What is packed at once of so many groups."""
        size = self.micro_batch * self.num_devices
        return [slice(start, start + size) for start in range(0, num_groups, size)]

    def _shares(self, num_groups: int) -> list[slice]:
        share = -(-num_groups // self.num_devices)
        return [slice(device * share, (device + 1) * share) for device in range(self.num_devices)]

    def _rows(self, groups: Sequence[Group]) -> list[PackedRow]:
        if not self.prefix:
            rows = [PackedRow((), [group]) for group in groups]
            return rows + [PackedRow((), ())] * (self.micro_batch - len(groups))
        if not groups:
            return [PackedRow((), ())]
        rests = [group._replace(prompt=group.prompt[self.prefix :]) for group in groups]
        return [PackedRow(groups[0].prompt[: self.prefix], rests)]


def choose_layout(
    prompts: Sequence[Ids],
    *,
    batch_size: int,
    micro_batch: int,
    group_size: int,
    max_response: int,
    num_devices: int = 1,
) -> Layout:
    """One row over the common beginning where that saves a quarter of the inputs, a row for each group otherwise.

    Args:
        prompts: of the whole dataset.
        batch_size: groups of one update, which the devices share.
        micro_batch: most groups that a device takes at once.
        group_size: responses of a group.
        max_response: longest response.
        num_devices: that work together.
    """
    micro_batch = min(micro_batch, -(-batch_size // num_devices))
    longest, prefix = max(map(len, prompts)), shared_prefix(prompts)
    inputs = group_size * (max_response - 1)
    apart, together = round_up(longest + inputs), round_up(prefix + micro_batch * (longest - prefix + inputs))
    if 4 * together <= 3 * micro_batch * apart:
        return Layout(prefix, micro_batch, group_size, max_response, together, num_devices)
    return Layout(0, micro_batch, group_size, max_response, apart, num_devices)
