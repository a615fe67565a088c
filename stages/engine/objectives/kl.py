"""Estimates of KL(P, Q) in nats from log-probabilities p and q of tokens that P sampled.

Source: Schulman 2020, "Approximating KL divergence".
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from stages.engine.objectives.policy import log_ratio


def kl_k1(logprobs: Float[Array, "*B"], ref_logprobs: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """The difference p - q: unbiased, may be negative.

    For reports and rewards only: as a loss, its expected gradient is 0.
    """
    return logprobs - ref_logprobs


def kl_k2(logprobs: Float[Array, "*B"], ref_logprobs: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """(p - q)² / 2: never negative, biased."""
    return 0.5 * jnp.square(logprobs - ref_logprobs)


def kl_k3(logprobs: Float[Array, "*B"], ref_logprobs: Float[Array, "*B"]) -> Float[Array, "*B"]:
    """exp(q - p) - (q - p) - 1: unbiased and never negative; q - p is limited to ±20, where exp would overflow."""
    difference = log_ratio(ref_logprobs, logprobs)
    return jnp.expm1(difference) - difference
