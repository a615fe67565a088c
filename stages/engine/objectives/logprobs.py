"""Log-probabilities of tokens under the distribution that they are sampled from."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def target_logprobs(
    logits: Float[Array, "*B V"], targets: Int[Array, "*B"], temperature: float = 1.0
) -> Float[Array, "*B"]:
    """Log-probability of each target in nats, in float32.

    Args:
        logits: of any float type.
        targets: ids below V.
        temperature: divides the logits, above 0; that of the sampler, since training needs the distribution sampled.
    """
    scaled = logits.astype(jnp.float32) / temperature
    chosen = jnp.take_along_axis(scaled, targets[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(scaled, axis=-1)
