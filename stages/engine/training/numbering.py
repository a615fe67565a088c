"""Numbers for the tokens of a training step, by which adapters drop inputs alike in any packing."""

import numpy as np

from stages.engine.data.packing import PackedBatch, Packing
from stages.engine.models.dropout import TokenNumbers


def token_numbers(packing: Packing, packed: PackedBatch, update: int) -> TokenNumbers:
    """Of a packed micro-batch of an update."""
    return TokenNumbers(np.full(len(packed.groups), update, np.int32), packing.owners(packed))
