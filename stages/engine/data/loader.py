"""The order in which rows are used: a function of the seed and a counter, with no state to save."""

import functools

import numpy as np
from jaxtyping import Int64


def batch_rows(num_rows: int, batch_size: int, seed: int, batch: int) -> list[int]:
    """Row indices of one batch.

    Batches cut an endless series of epochs, each a permutation of all rows, into equal pieces. A batch that reaches
    past an epoch goes on in the next, so no row is dropped; it depends on its number alone, so a resumed run needs no
    other state.

    Args:
        num_rows: rows of the dataset.
        batch_size: rows of a batch.
        seed: any number from 0.
        batch: number of the batch, from 0.
    """
    start = batch * batch_size
    return [permutation(num_rows, seed, at // num_rows)[at % num_rows] for at in range(start, start + batch_size)]


@functools.lru_cache(maxsize=4)
def permutation(num_rows: int, seed: int, epoch: int) -> tuple[int, ...]:
    """A permutation of all rows; another one for each seed and epoch, the same on every machine and version."""
    return tuple(shuffled_rows(num_rows, seed, epoch).tolist())


def shuffled_rows(num_rows: int, seed: int, epoch: int) -> Int64[np.ndarray, " rows"]:
    """The same permutation as an array, for more rows than Python numbers fit into memory.

    Sorts the raw words of a counter-based generator, which unlike NumPy's own shuffles are fixed for all versions.
    """
    words = np.random.Philox(np.random.SeedSequence((seed, epoch))).random_raw(num_rows)
    return np.argsort(words, kind="stable")
