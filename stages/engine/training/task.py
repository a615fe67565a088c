"""What a supervised stage trains on and for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from stages.engine.data.batching import Batch
from stages.engine.models.lora import Weights
from stages.engine.training.step import BatchT, LossFunction


@dataclass(frozen=True)
class Task(Generic[BatchT]):
    """Rows, how they become batches, and the loss on them.

    Attributes:
        loss: of a micro-batch: a sum and what it is divided by; its further sums become metrics.
        num_rows: of the dataset.
        batches: from numbers of rows and that of the update, which is None in an evaluation, to micro-batches of one
            shape, the rows of all devices of a cluster side by side.
        tokens_of: what the model reads of a micro-batch.
        show: a row in words, as one line of JSON.
        complete: from the weights, rows, the number of the update and their micro-batches to these with what depends on
            the weights or on all of them together; it may leave arrays on the devices, divided by rows.
    """

    loss: LossFunction[BatchT]
    num_rows: int
    batches: Callable[[Sequence[int], int | None], Sequence[BatchT]]
    tokens_of: Callable[[BatchT], Batch]
    show: Callable[[int], str]
    complete: Callable[[Weights, Sequence[int], int | None, Sequence[BatchT]], Sequence[BatchT]] = (
        lambda _, __, ___, batches: batches
    )
