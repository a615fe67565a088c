"""Drawing a token, with its log-probability under the distribution it was drawn from."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from stages.engine.objectives.logprobs import target_logprobs


def make_row_keys(seed: int, step: int, prompt_ids: Int[Array, " P"], group_size: int) -> Key[Array, "P G"]:
    """One key for each response, a function of (seed, step, prompt id, sample index) and of nothing else."""
    step_key = jax.random.fold_in(jax.random.key(seed), step)
    prompt_keys = jax.vmap(lambda prompt_id: jax.random.fold_in(step_key, prompt_id))(prompt_ids)
    samples = jnp.arange(group_size)
    return jax.vmap(lambda key: jax.vmap(lambda sample: jax.random.fold_in(key, sample))(samples))(prompt_keys)


def sample_tokens(
    logits: Float[Array, "rows V"], row_keys: Key[Array, " rows"], token_index: Int[Array, ""], temperature: float
) -> tuple[Int[Array, " rows"], Float[Array, " rows"]]:
    """Draws one token a row from softmax(logits / temperature); temperature 0 takes the largest logit.

    Returns:
        Tokens, and their log-probabilities in nats under the sampled distribution (at temperature 0, under
        softmax(logits): the distribution sampled is then a point).
    """
    if temperature == 0:
        tokens = jnp.argmax(logits, axis=-1)
        return tokens, target_logprobs(logits, tokens)
    scaled = logits / temperature
    noise = jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, token_index), scaled.shape[-1:]))(row_keys)
    tokens = jnp.argmax(scaled + noise, axis=-1)
    return tokens, target_logprobs(scaled, tokens)
