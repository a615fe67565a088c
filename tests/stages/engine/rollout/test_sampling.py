"""Tokens are drawn from the stated distribution, with numbers that belong to each token."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.engine.rollout.sampling import row_uniforms, sample_tokens

draw = jax.jit(sample_tokens, static_argnums=2)


def test_draws_follow_the_distribution_at_its_temperature() -> None:
    logits = np.linspace(-2, 2, 300).astype(np.float32)
    rows = 20_000
    uniforms = row_uniforms(seed=3, step=0, prompt_ids=range(rows), group_size=1, num_tokens=1).reshape(-1)
    for temperature in (0.5, 1.0, 2.0):
        tokens, logprobs = draw(jnp.broadcast_to(logits, (rows, 300)), jnp.asarray(uniforms), temperature)
        expected = np.asarray(jax.nn.softmax(logits / temperature))
        # Ten bins of equal probability: each count is within five standard deviations.
        bins = np.searchsorted(np.cumsum(expected), np.linspace(0, 1, 11)[1:-1])
        counts = np.bincount(np.searchsorted(bins, np.asarray(tokens), side="left"), minlength=10)
        mass = np.diff([0.0, *(np.cumsum(expected)[bins]), 1.0])
        assert np.all(np.abs(counts - rows * mass) < 5 * np.sqrt(rows * mass))
        np.testing.assert_allclose(logprobs, np.log(expected)[np.asarray(tokens)], atol=1e-5)


@settings(max_examples=30)
@given(
    st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=300),
    st.floats(0, 1, exclude_max=True, width=32),
)
def test_the_drawn_token_is_where_the_running_sum_passes_the_number(logits: list[float], uniform: float) -> None:
    padded = np.full(300, -np.inf, np.float32)
    padded[: len(logits)] = logits
    token = int(draw(jnp.asarray(padded)[None], jnp.asarray([uniform], jnp.float32), 1.0)[0][0])
    probabilities = np.exp(padded.astype(np.float64) - padded.max())
    sums = np.cumsum(probabilities) / probabilities.sum()
    assert probabilities[token] > 0
    assert sums[token] >= uniform - 1e-5
    assert (sums[token - 1] if token else 0.0) <= uniform + 1e-5


def test_a_token_that_cannot_be_drawn_never_is_even_at_the_ends() -> None:
    logits = jnp.full((2, 1000), -jnp.inf).at[:, 500].set(0.0)
    tokens, logprobs = draw(logits, jnp.asarray([0.0, 1 - 2**-24], jnp.float32), 1.0)
    assert tokens.tolist() == [500, 500]
    assert logprobs.tolist() == [0.0, 0.0]


def test_temperature_zero_takes_the_largest_logit_whatever_the_number() -> None:
    tokens, _ = draw(jnp.asarray([[0.0, 3.0, 1.0]] * 2), jnp.asarray([0.0, 0.99]), 0.0)
    assert tokens.tolist() == [1, 1]


def test_a_token_s_number_depends_on_seed_step_prompt_sample_and_index_alone() -> None:
    whole = row_uniforms(seed=5, step=2, prompt_ids=[7, 1, 9], group_size=4, num_tokens=6)
    assert whole.dtype == np.float32
    assert ((whole >= 0) & (whole < 1)).all()
    np.testing.assert_array_equal(row_uniforms(5, 2, [9], 2, 3), whole[2:, :2, :3])
    everything = [whole, row_uniforms(6, 2, [7, 1, 9], 4, 6), row_uniforms(5, 3, [7, 1, 9], 4, 6)]
    assert len(np.unique(np.stack(everything))) == 3 * 3 * 4 * 6


def test_numbers_are_the_same_on_every_machine_and_version() -> None:
    expected = [0.7101590633392334, 0.1911373734474182, 0.1165459156036377]
    assert row_uniforms(17, 1, [3], 1, 3)[0, 0].tolist() == expected
