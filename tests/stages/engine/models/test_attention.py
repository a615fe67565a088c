"""Who sees whom, and attention over parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float

from stages.engine.models.attention import Part, Scoring, attend_parts, tree_mask, within_window

ROWS, QUERIES, KEYS, HEADS, KV_HEADS, SIZE = 4, 3, 6, 4, 2, 8
TOLERANCE = 1e-6


SCORING = Scoring(SIZE**-0.5)


@jax.jit
def attend(q: Array, parts: list[Part]) -> Array:
    return attend_parts(q, parts, SCORING)


def random(*shape: int, seed: int) -> Float[Array, "..."]:
    return jax.random.normal(jax.random.key(seed), shape)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One head and one query at a time."""
    out = np.zeros_like(q)
    for row, at, head in np.ndindex(q.shape[:3]):
        kv_head = head // (HEADS // KV_HEADS)
        seen = np.flatnonzero(mask[row, at])
        scores = k[row, seen, kv_head] @ q[row, at, head] / np.sqrt(SIZE)
        weights = np.exp(scores - scores.max())
        out[row, at, head] = weights @ v[row, seen, kv_head] / weights.sum()
    return out


@pytest.fixture
def parts() -> tuple[Float[Array, "B T N H"], Part]:
    mask = jax.random.bernoulli(jax.random.key(9), 0.6, (ROWS, QUERIES, KEYS)).at[:, :, 2].set(True)
    k, v = (random(ROWS, KEYS, KV_HEADS, SIZE, seed=seed) for seed in (1, 2))
    return random(ROWS, QUERIES, HEADS, SIZE, seed=0), Part(k, v, mask, jnp.arange(KEYS)[None])


def split(part: Part, at: int) -> list[Part]:
    return [
        Part(part.key[:, here], part.value[:, here], part.mask[:, :, here], part.positions[:, here])
        for here in (slice(0, at), slice(at, None))
    ]


def test_segments_branches_and_padding_by_hand() -> None:
    segments, branches = jnp.array([[1, 2, 2, 2, 2, 3, 0, 0]]), jnp.array([[0, 0, 1, 1, 2, 0, 0, 0]])
    expected = [
        [1, 0, 0, 0, 0, 0, 0, 0],  # the root, seen by all groups
        [1, 1, 0, 0, 0, 0, 0, 0],  # a group's prompt
        [1, 1, 1, 0, 0, 0, 0, 0],  # branch 1
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0, 0],  # branch 2 does not see branch 1
        [1, 0, 0, 0, 0, 1, 0, 0],  # another group sees the root and itself
        [0, 0, 0, 0, 0, 0, 1, 0],  # padding sees itself alone
        [0, 0, 0, 0, 0, 0, 0, 1],
    ]
    assert tree_mask(segments, branches)[0].astype(int).tolist() == expected


def test_rows_have_masks_of_their_own() -> None:
    segments, branches = jnp.array([[1, 1], [1, 0]]), jnp.zeros((2, 2), jnp.int32)
    assert tree_mask(segments, branches).astype(int).tolist() == [[[1, 0], [1, 1]], [[1, 0], [0, 1]]]


def test_attention_is_softmax_over_the_keys_that_the_mask_shows(parts: tuple[Array, Part]) -> None:
    q, part = parts
    np.testing.assert_allclose(
        attend(q, [part]), reference(*map(np.asarray, (q, part.key, part.value, part.mask))), atol=TOLERANCE
    )


def test_keys_in_two_parts_are_as_in_one(parts: tuple[Array, Part]) -> None:
    q, part = parts
    for at in (1, 4):
        np.testing.assert_allclose(attend(q, split(part, at)), attend(q, [part]), atol=TOLERANCE)


def test_an_empty_part_changes_nothing(parts: tuple[Array, Part]) -> None:
    q, part = parts
    np.testing.assert_array_equal(attend(q, split(part, 0)), attend(q, [part]))


def test_keys_that_rows_share_are_as_if_each_row_had_them(parts: tuple[Array, Part]) -> None:
    q, part = parts
    for shared in (1, 2):
        few = part._replace(key=part.key[:shared], value=part.value[:shared])
        key, value = (jnp.repeat(x, ROWS // shared, axis=0) for x in (few.key, few.value))
        each = part._replace(key=key, value=value)
        own = Part(
            random(ROWS, 2, KV_HEADS, SIZE, seed=5),
            random(ROWS, 2, KV_HEADS, SIZE, seed=6),
            _all(2),
            jnp.arange(2)[None],
        )
        np.testing.assert_allclose(attend(q, [few, own]), attend(q, [each, own]), atol=TOLERANCE)


def _all(keys: int) -> Bool[Array, "1 1 S"]:
    return jnp.ones((1, 1, keys), bool)


def test_what_the_mask_hides_has_no_influence_and_no_gradient(parts: tuple[Array, Part]) -> None:
    q, part = parts
    hidden = part._replace(mask=part.mask.at[:, :, 0].set(False))
    other = hidden._replace(key=part.key.at[:, 0].set(1e4), value=part.value.at[:, 0].set(-1e4))
    np.testing.assert_array_equal(attend(q, [hidden]), attend(q, [other]))
    gradient = jax.grad(lambda value: attend(q, [hidden._replace(value=value)]).sum())(part.value)
    assert not gradient[:, 0].any()
    assert gradient[:, 2].any()


def test_in_a_window_a_query_sees_the_keys_at_positions_near_its_own(parts: tuple[Array, Part]) -> None:
    _, part = parts
    positions = jnp.array([[3, 4, 9]])
    seen = within_window([part._replace(mask=jnp.ones((1, 1, KEYS), bool))], positions, jnp.int32(2))[0].mask
    assert seen[0].astype(int).tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]]


def test_scores_are_scaled_and_then_capped(parts: tuple[Array, Part]) -> None:
    q, part = parts
    one = part._replace(key=part.key[:, :1], value=part.value[:, :1], mask=_all(1), positions=jnp.zeros((1, 1), int))
    zero = one._replace(key=jnp.zeros_like(one.key), value=jnp.zeros_like(one.value))
    score = jnp.einsum("BTKRH,BSKH->BTKR", q.reshape(ROWS, QUERIES, KV_HEADS, -1, SIZE), one.key) * 3.0
    share = jax.nn.sigmoid(0.5 * jnp.tanh(score / 0.5))[..., None]
    expected = (share * one.value[:, :, :, None]).reshape(q.shape)
    np.testing.assert_allclose(attend_parts(q, [one, zero], Scoring(3.0, 0.5)), expected, atol=TOLERANCE)


def test_a_query_that_sees_nothing_stays_finite(parts: tuple[Array, Part]) -> None:
    q, part = parts
    blind = part._replace(mask=jnp.zeros_like(part.mask))
    gradient = jax.grad(lambda q: attend(q, [blind]).sum())(q)
    assert jnp.isfinite(attend(q, [blind])).all()
    assert jnp.isfinite(gradient).all()
