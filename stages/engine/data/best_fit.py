"""Which groups share a row: best fit in two sizes at once, the largest first."""

import numpy as np
from jaxtyping import Int64


def best_fit(
    inputs: Int64[np.ndarray, " N"], targets: Int64[np.ndarray, " N"], num_inputs: int, num_targets: int
) -> list[list[int]]:
    """Rows of groups that fit, few of them.

    The largest group comes first, measured by the size of which it takes the larger share; each goes to the row that
    it fills best (best fit decreasing; vector bin packing as in arXiv 1107.0750). Among equals the earlier comes first,
    so that the same groups always give the same rows.

    Args:
        inputs: of each group.
        targets: of each group.
        num_inputs: room for inputs in a row.
        num_targets: room for targets in a row.

    Returns:
        For each row the numbers of its groups.

    Raises:
        ValueError: a group is larger than a row.
    """
    sizes = np.stack([inputs, targets], axis=1)
    room = np.array([num_inputs, num_targets])
    if len(too_large := np.flatnonzero((sizes > room).any(axis=1))):
        wide, many = sizes[too_large[0]]
        raise ValueError(
            f"group {too_large[0]}: {wide} inputs and {many} targets do not fit a row's {num_inputs} and {num_targets}"
        )
    shares = sizes / np.maximum(room, 1)
    free = np.tile(room, (len(sizes), 1))
    left = np.full(len(sizes), 2.0)  # of both sizes together, as shares of a row
    rows: list[list[int]] = []
    for group in np.argsort(-shares.max(axis=1), kind="stable").tolist():
        opened = len(rows)
        fits = (free[:opened] >= sizes[group]).all(axis=1)
        row = int(np.argmin(np.where(fits, left[:opened], np.inf))) if fits.any() else opened
        if row == opened:
            rows.append([])
        rows[row].append(group)
        free[row] -= sizes[group]
        left[row] -= shares[group].sum()
    return rows
