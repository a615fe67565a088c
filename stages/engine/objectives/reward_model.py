"""Losses of a reward model for each pair of a better and a worse response."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def bradley_terry(
    chosen: Float[Array, "*P"], rejected: Float[Array, "*P"], margins: Float[Array, "*P"]
) -> Float[Array, "*P"]:
    """Negative log-likelihood of each preference in nats: -log σ(chosen - rejected - margin).

    Source: Bradley and Terry 1952, as a loss in arXiv 2009.01325, equation 1; the margin is that of arXiv 2307.09288,
    equation 2.

    Args:
        chosen: rewards of the better responses.
        rejected: rewards of the worse ones.
        margins: by how much the better ones should at least be ahead; 0 for the plain loss.
    """
    return jax.nn.softplus(rejected + margins - chosen)


def centering(chosen: Float[Array, "*P"], rejected: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """(chosen + rejected)², which keeps rewards around 0: preferences alone say nothing about their level.

    Source: arXiv 2312.09244, the regulariser of its reward models.
    """
    return jnp.square(chosen + rejected)
