"""Losses of a policy for each token."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are limited to this, in nats, before they are exponentiated."""


def log_ratio(logprobs: Float[Array, "*B"], other: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """The difference, limited to ±20; beyond the limit it has no gradient."""
    return jnp.clip(logprobs - other, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def clipped_surrogate(
    logprobs: Float[Array, "B T"],
    old_logprobs: Float[Array, "B T"],
    advantages: Float[Array, "B #T"],
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Array, "B T"], Bool[Array, "B T"]]:
    """The clipped surrogate: max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) with r = exp(logprobs - old_logprobs).

    Source: arXiv 1707.06347, equation 7, as a loss.

    Args:
        logprobs: of the trained policy.
        old_logprobs: of the weights that sampled, a constant.
        advantages: for each token, or one for each sequence.
        clip_low: see the formula; with another `clip_high` this is clip-higher (arXiv 2503.14476).
        clip_high: see the formula.

    Returns:
        The loss of each token, and where the clipped branch was taken, so that the token has no gradient.
    """
    ratio = jnp.exp(log_ratio(logprobs, old_logprobs))
    free = -advantages * ratio
    clipped = -advantages * jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
    return jnp.maximum(free, clipped), clipped > free
