"""How much better a response is than the others of its group."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_EPSILON = 1e-6
"""Added to the standard deviation of a group."""


def tied_groups(rewards: Float[Array, "P G"]) -> Bool[Array, " P"]:
    """Groups whose rewards are all equal: they say nothing about what is better."""
    return rewards.max(-1) == rewards.min(-1)


def grpo_advantages(rewards: Float[Array, "P G"]) -> Float[Array, "P G"]:
    """Centred and scaled by the group's deviation: (r - mean) / (std + 1e-6), std with G - 1 (arXiv 2402.03300)."""
    centred = dr_grpo_advantages(rewards)
    variance = jnp.square(centred).sum(-1, keepdims=True) / max(rewards.shape[-1] - 1, 1)
    return centred / (jnp.sqrt(variance) + _EPSILON)


def dr_grpo_advantages(rewards: Float[Array, "P G"]) -> Float[Array, "P G"]:
    """Centred only: r - mean (arXiv 2503.20783). Exactly 0 in a tied group, whatever the mean is rounded to."""
    centred = rewards - rewards.mean(-1, keepdims=True)
    return jnp.where(tied_groups(rewards)[:, None], 0.0, centred)


def rloo_advantages(rewards: Float[Array, "P G"]) -> Float[Array, "P G"]:
    """Against the mean of the others (arXiv 2402.14740), which is the centred reward times G / (G - 1); 0 for G = 1."""
    group_size = rewards.shape[-1]
    return dr_grpo_advantages(rewards) * (group_size / max(group_size - 1, 1))


ADVANTAGES: Mapping[str, Callable[[Float[Array, "P G"]], Float[Array, "P G"]]] = {
    "grpo": grpo_advantages,
    "dr_grpo": dr_grpo_advantages,
    "rloo": rloo_advantages,
}
