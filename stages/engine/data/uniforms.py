"""Random numbers as float32, from the raw words of a counter-based generator."""

import numpy as np
from jaxtyping import Float32


def uniforms(generator: np.random.Philox, num: int) -> Float32[np.ndarray, " num"]:
    """The generator's next numbers in [0, 1), one of each word: unlike NumPy's own, fixed for all its versions."""
    # 24 bits are what a float32 below 1 holds without rounding up to 1.
    return (generator.random_raw(num) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
