"""Numbers for the tokens of a training step, by which adapters drop inputs alike in any packing."""

import numpy as np

from stages.engine.data.packing import PackedBatch, Packing
from stages.engine.models.dropout import TokenNumbers


def token_numbers(packing: Packing, packed: PackedBatch, update: int | None) -> TokenNumbers | None:
    """Of a packed micro-batch of an update; none where nothing is dropped."""
    return (
        None if update is None else TokenNumbers(np.full(len(packed.groups), update, np.int32), packing.owners(packed))
    )
