"""The sampler: what is drawn, and on what it depends."""

from collections.abc import Callable, Sequence
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from stages.engine.data.batching import Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.attention import tree_mask
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.lora import Frozen, Weights, bind
from stages.engine.models.source import LoadedModel
from stages.engine.models.transformer import Cells, Decoder
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.sampler import NativeSampler, Responses
from stages.engine.rollout.scoring import make_scorer

pytestmark = pytest.mark.usefixtures("quickly_compiled")

TOLERANCE = 1e-5
MAX_TOKENS = 8
PREFIX = (1, 120, 110, 201)
PROMPTS = [(*PREFIX, *rest) for rest in ((5, 6, 7), (80,), (9, 8, 7, 6, 5), (33, 44), (80, 81))]
"""Prompts of several lengths with a common beginning."""
ENDS = frozenset(range(0, 259, 6))
"""One token in six ends a response, so that lengths differ."""

MakeSampler = Callable[..., NativeSampler]


@pytest.fixture(scope="module")
def make_sampler(tiny: LoadedModel) -> MakeSampler:
    """A sampler for `PROMPTS` unless said otherwise; equal arguments give the same, compiled one."""

    @cache
    def make(
        *,
        temperature: float = 1.0,
        group_size: int = 2,
        micro_batch: int = 5,
        prompts: tuple[tuple[int, ...], ...] = tuple(PROMPTS),
        seed: int = 11,
        max_response_tokens: int = MAX_TOKENS,
        ends: frozenset[int] = ENDS,
    ) -> NativeSampler:
        return NativeSampler(
            tiny.frozen,
            ends,
            SamplingConfig(temperature=temperature, max_response_tokens=max_response_tokens),
            group_size=group_size,
            micro_batch=micro_batch,
            prompts=prompts,
            seed=seed,
        )

    return make


@pytest.fixture(scope="module")
def reference(make_sampler: MakeSampler, moved: Weights) -> Responses:
    """Responses to all prompts in one batch."""
    return make_sampler().sample(moved, PROMPTS, range(len(PROMPTS)), step=0)


def test_a_greedy_response_is_the_largest_logit_of_a_full_pass_token_by_token(
    make_sampler: MakeSampler, tiny: LoadedModel, moved: Weights
) -> None:
    sampler = make_sampler(temperature=0.0, ends=frozenset({258}))
    drawn = sampler.sample(moved, PROMPTS, range(len(PROMPTS)), step=0)

    @jax.jit
    def largest(adapter: Weights, base: Cells, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        decoder = bind(tiny.frozen.graph, adapter, base)
        index = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        mask = tree_mask((index < lengths[:, None]).astype(jnp.int32), jnp.zeros_like(tokens))
        hidden, _ = decoder(tokens, index, look_at_tokens(mask, index))
        return decoder.logits(hidden[jnp.arange(len(tokens)), lengths - 1]).argmax(axis=-1)

    texts = [list(prompt) for prompt in PROMPTS]
    for _ in range(MAX_TOKENS):
        lengths = np.array([len(text) for text in texts])
        padded = np.array([text + [0] * (24 - len(text)) for text in texts])
        for text, token in zip(texts, largest(moved, tiny.frozen.base, padded, lengths), strict=True):
            text.append(int(token))
    for prompt, text, (response, other) in zip(PROMPTS, texts, drawn.tokens, strict=True):
        assert list(response) == text[len(prompt) :]
        assert response == other
    assert len({response for response, _ in drawn.tokens}) > 1


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_the_tokens_under_the_distribution_drawn_from(
    make_sampler: MakeSampler, tiny: LoadedModel, moved: Weights, temperature: float
) -> None:
    drawn = make_sampler(temperature=temperature).sample(moved, PROMPTS, range(len(PROMPTS)), step=0)
    rows = [PackedRow((), [Group(prompt, group)]) for prompt, group in zip(PROMPTS, drawn.tokens, strict=True)]
    batch = pack_rows(rows, TargetShape(1, 2, MAX_TOKENS), width=32)
    scored = np.where(batch.target_mask, make_scorer(tiny.frozen, temperature)(moved, batch), 0)
    np.testing.assert_allclose(drawn.logprobs.reshape(scored.shape), scored, atol=TOLERANCE)


def test_the_end_token_is_the_responses_last_and_the_others_are_cut_off(reference: Responses) -> None:
    flat = [response for group in reference.tokens for response in group]
    for response, ended in zip(flat, reference.ended.reshape(-1), strict=True):
        assert not ENDS & set(response[:-1])
        assert ended == (response[-1] in ENDS)
        assert ended or len(response) == MAX_TOKENS
    assert len({len(response) for response in flat}) > 1
    assert {True, False} == set(reference.ended.reshape(-1).tolist())


def test_there_are_log_probabilities_up_to_a_responses_end_and_zeros_after(reference: Responses) -> None:
    for group, logprobs in zip(reference.tokens, reference.logprobs, strict=True):
        for response, row in zip(group, logprobs, strict=True):
            assert (row[: len(response)] < 0).all()
            assert not row[len(response) :].any()


def assert_same(drawn: Responses, expected: Responses, rows: Sequence[int]) -> None:
    assert drawn.tokens == [expected.tokens[row] for row in rows]
    np.testing.assert_allclose(drawn.logprobs, expected.logprobs[np.array(rows)], atol=TOLERANCE)
    np.testing.assert_array_equal(drawn.ended, expected.ended[np.array(rows)])


def test_a_response_depends_neither_on_the_order_nor_on_the_company_of_its_prompt(
    make_sampler: MakeSampler, moved: Weights, reference: Responses
) -> None:
    sampler = make_sampler()
    for rows in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [3], [1, 4, 2], [2, 3, 4, 0, 1, 2, 3]):
        assert_same(sampler.sample(moved, [PROMPTS[row] for row in rows], rows, step=0), reference, rows)


def test_neither_batches_nor_a_shared_beginning_change_a_response(
    make_sampler: MakeSampler, moved: Weights, reference: Responses
) -> None:
    sampler = make_sampler(prompts=(*PROMPTS, (7, 7)), micro_batch=2)
    assert_same(sampler.sample(moved, PROMPTS, range(5), step=0), reference, range(5))


def test_in_a_wider_batch_and_a_smaller_group_a_response_is_the_same_up_to_the_length_asked_for(
    make_sampler: MakeSampler, moved: Weights, reference: Responses
) -> None:
    sampler = make_sampler(prompts=(*PROMPTS, (*PREFIX, *range(100, 130))), group_size=1, max_response_tokens=3)
    drawn = sampler.sample(moved, PROMPTS, range(5), step=0)
    assert drawn.tokens == [[first[:3]] for first, _ in reference.tokens]
    assert 3 in {len(response) for (response,) in drawn.tokens}
    assert not all(ended for (ended,) in drawn.ended)


def test_samples_of_a_prompt_differ(reference: Responses) -> None:
    assert all(len(set(group)) == len(group) for group in reference.tokens)


def test_the_same_prompt_under_another_number_or_at_another_step_is_sampled_anew(
    make_sampler: MakeSampler, moved: Weights, reference: Responses
) -> None:
    sampler = make_sampler()
    twice = sampler.sample(moved, [PROMPTS[0], PROMPTS[0]], [0, 7], step=0)
    assert twice.tokens[0] == reference.tokens[0] != twice.tokens[1]
    assert sampler.sample(moved, PROMPTS[:1], [0], step=1).tokens[0] != reference.tokens[0]
    other_seed = make_sampler(seed=12).sample(moved, PROMPTS[:1], [0], step=0)
    assert other_seed.tokens[0] != reference.tokens[0]


def test_other_weights_give_other_responses_without_a_new_sampler(
    make_sampler: MakeSampler, tiny: LoadedModel, moved: Weights, reference: Responses
) -> None:
    sampler = make_sampler()
    rows = range(len(PROMPTS))
    assert sampler.sample(tiny.trained, PROMPTS, rows, step=0).tokens != reference.tokens
    assert_same(sampler.sample(moved, PROMPTS, rows, step=0), reference, rows)


def test_at_temperature_zero_steps_are_alike(make_sampler: MakeSampler, moved: Weights) -> None:
    sampler = make_sampler(temperature=0.0, ends=frozenset({258}))
    one, other = (sampler.sample(moved, PROMPTS, rows, step) for rows, step in ((range(5), 0), (range(5, 10), 3)))
    assert one.tokens == other.tokens


def test_a_model_in_bfloat16_is_sampled_in_it(tiny: LoadedModel) -> None:
    base = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tiny.frozen.base)
    graph, _ = nnx.split(nnx.eval_shape(lambda: Decoder(tiny.opened.checkpoint.arch, rngs=nnx.Rngs(0))))
    config = SamplingConfig(temperature=0.0, max_response_tokens=3)
    arguments = {"group_size": 1, "micro_batch": 5, "prompts": PROMPTS, "seed": 0}
    exact, short = (
        NativeSampler(Frozen(graph, weights), frozenset({258}), config, **arguments).sample({}, PROMPTS, range(5), 0)
        for weights in (tiny.frozen.base, base)
    )
    same = [first[0][:1] == second[0][:1] for first, second in zip(exact.tokens, short.tokens, strict=True)]
    assert sum(same) >= 4
    np.testing.assert_allclose(short.logprobs[same, 0, 0], exact.logprobs[same, 0, 0], atol=0.1)
