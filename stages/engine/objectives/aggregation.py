"""From losses of tokens to one loss, as an unreduced sum and its denominator.

Sums and denominators of parts of a batch add up to those of the whole, so that accumulation gives the whole's gradient.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from stages.engine.objectives.masking import masked_mean, masked_sum

SumAndDenominator = tuple[Float[Array, ""], Float[Array, ""]]


def token_mean(losses: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> SumAndDenominator:
    """Mean over all tokens: a long sequence weighs more."""
    return masked_sum(losses, mask).sum(), mask.sum().astype(losses.dtype)


def sequence_mean_token_mean(losses: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> SumAndDenominator:
    """Mean over sequences with a token of the mean over each one's tokens."""
    return masked_mean(losses, mask).sum(), _num_sequences(losses, mask)


def sequence_mean_token_sum(losses: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> SumAndDenominator:
    """Mean over sequences with a token of the sum over each one's tokens."""
    return masked_sum(losses, mask).sum(), _num_sequences(losses, mask)


AGGREGATIONS: Mapping[str, Callable[[Float[Array, "B T"], Bool[Array, "B T"]], SumAndDenominator]] = {
    "token_mean": token_mean,
    "sequence_mean_token_mean": sequence_mean_token_mean,
    "sequence_mean_token_sum": sequence_mean_token_sum,
}


def _num_sequences(losses: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, ""]:
    return jnp.any(mask, axis=-1).sum().astype(losses.dtype)
