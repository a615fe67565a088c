"""The shape of rows in which a dataset's updates cost least, from the sizes of its groups alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from stages.engine.data.batching import round_up
from stages.engine.data.best_fit import best_fit

TARGET_COST = 0.3
"""What a target costs, in inputs: its logits. A share of the vocabulary's matrix in a model of usual size."""

SLOW_WIDTH = 4096
"""Width at which attention costs an input as much again as all else does."""

MICRO_BATCH_COST = 64
"""What a micro-batch costs by itself, in inputs: weights are read, and gradients added."""

_WIDTHS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""How many of the widest groups a row may hold."""

_TARGETS = (1.0, 1.1, 1.3, 1.6)
"""Room for targets, by the share of targets in all the dataset."""

_SAMPLE, _MIN_UPDATES, _MAX_UPDATES = 256, 4, 16
"""Groups whose packing is tried, in so many updates."""


class RowChoice(NamedTuple):
    """A shape, and what an update costs with it in inputs.

    Attributes:
        cost: on each device.
        width: inputs of a row, with what the groups share.
        num_targets: room for targets of a row.
        num_rows: rows of a micro-batch, on each device.
    """

    cost: float
    width: int
    num_targets: int
    num_rows: int


@dataclass(frozen=True)
class RowSearch:
    """What is known of a dataset and of the run over it.

    Attributes:
        inputs: of each group, without the tokens that its row has once.
        targets: of each group.
        prefix: tokens that a row has once.
        max_inputs: of a micro-batch, on each device; the widest group fits.
        batch_size: groups of an update.
        num_devices: which share an update's rows.
    """

    inputs: Int64[np.ndarray, " N"]
    targets: Int64[np.ndarray, " N"]
    prefix: int
    max_inputs: int
    batch_size: int
    num_devices: int

    def cheapest(self) -> RowChoice:
        """The shape that costs least for a few updates drawn from the dataset; of equals the narrowest."""
        updates = self._updates()
        total_inputs, total_targets = (
            int(sizes[np.concatenate(updates)].sum()) for sizes in (self.inputs, self.targets)
        )
        best: RowChoice | None = None
        for width, num_targets in self._shapes():
            rows = max(total_inputs / (width - self.prefix), total_targets / num_targets) / len(updates)
            least = rows / self.num_devices * _row_cost(width, num_targets)
            if best is None or least < best.cost:
                found = self._choose_rows(width, num_targets, updates)
                best = found if best is None or found.cost < best.cost else best
        assert best is not None
        return best

    def _choose_rows(self, width: int, num_targets: int, updates: Sequence[Int64[np.ndarray, " U"]]) -> RowChoice:
        room = width - self.prefix
        packed = (best_fit(self.inputs[update], self.targets[update], room, num_targets) for update in updates)
        rows = np.array(list(map(len, packed)))
        choices = []
        for num_rows in range(1, min(self.max_inputs // width, -(-int(rows.max()) // self.num_devices)) + 1):
            micro_batches = np.mean(-(-rows // (self.num_devices * num_rows)))
            cost = float(micro_batches) * (num_rows * _row_cost(width, num_targets) + MICRO_BATCH_COST)
            choices.append(RowChoice(cost, width, num_targets, num_rows))
        return min(choices)

    def _shapes(self) -> Iterator[tuple[int, int]]:
        """Widths and targets, narrow ones first."""
        widest, share = int(self.inputs.max()), float(self.targets.sum() / max(1, self.inputs.sum()))
        widths = {round_up(self.prefix + int(widest * times)) for times in _WIDTHS}
        least = round_up(self.prefix + widest)
        for width in sorted(width for width in widths if width <= max(least, self.max_inputs)):
            rooms = {int((width - self.prefix) * share * times) for times in _TARGETS}
            yield from (
                (width, num) for num in sorted({round_up(max(room, int(self.targets.max()))) for room in rooms})
            )

    def _updates(self) -> list[Int64[np.ndarray, " U"]]:
        """Groups of a few updates: the same ones whenever the dataset is the same."""
        num = min(max(_MIN_UPDATES, _SAMPLE // self.batch_size), _MAX_UPDATES)
        words = np.random.Philox(0).random_raw(num * self.batch_size)
        return list((words % len(self.inputs)).astype(np.int64).reshape(num, self.batch_size))


def _row_cost(width: int, num_targets: int) -> float:
    return width * (1 + width / SLOW_WIDTH) + TARGET_COST * num_targets
