"""From losses of tokens to one loss, as an unreduced sum and its denominator.

Sums and denominators of parts of a batch add up to those of the whole, so that accumulation gives the whole's gradient.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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


def sequence_sums(
    values: Float[Array, "B R"], sequences: Int[Array, "B R"], mask: Bool[Array, "B R"], num_sequences: int
) -> Float[Array, "B S"]:
    """Sums over the targets of each of the S sequences that share a row; 0 for a sequence without any.

    Added up in a fixed order, unlike a scatter, so that equal inputs give equal bits on every device.

    Args:
        values: of targets; where the mask is not set they do not enter, not even if they are infinite or NaN.
        sequences: the number of each target's sequence in its row, from 0.
        mask: where there is a target.
        num_sequences: S.
    """
    own = sequences[:, :, None] == jnp.arange(num_sequences)
    return jnp.where(own & mask[:, :, None], values[:, :, None], 0.0).sum(1)


def _num_sequences(losses: Float[Array, "B T"], mask: Bool[Array, "B T"]) -> Float[Array, ""]:
    return jnp.any(mask, axis=-1).sum().astype(losses.dtype)
