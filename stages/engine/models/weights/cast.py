"""Values from one type of float to another, in pieces that stay in a core's cache."""

import ml_dtypes
import numpy as np
from jaxtyping import Float

PIECE_VALUES = 1 << 16


def copy_values(source: Float[np.ndarray, "..."], out: Float[np.ndarray, "..."]) -> None:
    """Writes values into an array of the same shape, of any strides and of float32 or bfloat16.

    numpy goes through values of bfloat16 one by one; as integers they are moved and widened many at a time.
    """
    num_rows = max(1, PIECE_VALUES // max(1, source[:1].size))
    for row in range(0, len(source), num_rows):
        piece = source[row : row + num_rows]
        if piece.dtype == out.dtype == ml_dtypes.bfloat16:
            out[row : row + num_rows].view(np.uint16)[...] = piece.view(np.uint16)
        elif piece.dtype == ml_dtypes.bfloat16 and out.dtype == np.float32:
            out[row : row + num_rows] = (piece.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            out[row : row + num_rows] = piece


def all_finite(values: Float[np.ndarray, "..."]) -> bool:
    """Whether there is neither NaN nor infinity among values of float32 or bfloat16."""
    if values.dtype == ml_dtypes.bfloat16:
        return not np.any(values.view(np.uint16) & 0x7F80 == 0x7F80)
    return bool(np.isfinite(values).all())
