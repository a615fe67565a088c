"""How well the probabilities that a model gives fit what then is the case."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from stages.engine.objectives.masking import masked_mean, ratio


class Reliability(NamedTuple):
    """Predictions by how certain they were, in bins of equal width from a half to 1.

    Attributes:
        counts: predictions in each bin.
        confidences: mean confidence, 0 in an empty bin.
        accuracies: share that was right, 0 in an empty bin.
    """

    counts: Float[Array, " bins"]
    confidences: Float[Array, " bins"]
    accuracies: Float[Array, " bins"]


def reliability(
    probabilities: Float[Array, " P"], outcomes: Float[Array, " P"], mask: Bool[Array, " P"], num_bins: int
) -> Reliability:
    """The bins of a reliability diagram, each open below and closed above.

    The confidence of a prediction is the probability of what it holds for likelier, at least a half; it is right as far
    as that came true. At a half, which is no prediction, it counts as half right.

    Source: arXiv 1706.04599, equations 1 and 2.

    Args:
        probabilities: given to the event.
        outcomes: 1 where it came true, 0 where it did not, or a share.
        mask: predictions that count.
        num_bins: number of bins.
    """
    confidences = jnp.maximum(probabilities, 1.0 - probabilities)
    rights = jnp.select([probabilities > 0.5, probabilities < 0.5], [outcomes, 1.0 - outcomes], 0.5)
    bins = jnp.clip(jnp.ceil((confidences - 0.5) * (2 * num_bins)) - 1, 0, num_bins - 1)
    members = (bins == jnp.arange(num_bins)[:, None]) & mask
    counts = members.sum(-1).astype(probabilities.dtype)
    sums = (jnp.where(members, values, 0.0).sum(-1) for values in (confidences, rights))
    return Reliability(counts, *(ratio(total, counts) for total in sums))


def expected_calibration_error(bins: Reliability) -> Float[Array, ""]:
    """Mean distance between confidence and accuracy of the bins, weighted by their predictions; 0 without any.

    Source: arXiv 1706.04599, equation 3.
    """
    distances = jnp.abs(bins.accuracies - bins.confidences)
    return ratio((bins.counts * distances).sum(), bins.counts.sum())


def brier_score(
    probabilities: Float[Array, " P"], outcomes: Float[Array, " P"], mask: Bool[Array, " P"]
) -> Float[Array, ""]:
    """Mean squared distance between probability and outcome, 0 without any. Source: Brier 1950."""
    return masked_mean(jnp.square(probabilities - outcomes), mask)
