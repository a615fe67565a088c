"""The chance that one of k answers is right, from n answers of which c are."""

from math import comb


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k), without bias for k ≤ n (arXiv 2107.03374, equation 1).

    Args:
        num_samples: n.
        num_correct: c.
        k: answers of which one has to be right, at most n.
    """
    return 1.0 - comb(num_samples - num_correct, k) / comb(num_samples, k)
