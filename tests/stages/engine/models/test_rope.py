"""Rotary positions."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stages.engine.models.architecture import RopeSettings
from stages.engine.models.rope import make_rope, rotate


def turned(vector: list[float], position: int) -> Float[Array, "1 1 1 H"]:
    x_BTNH = jnp.array(vector)[None, None, None]
    return rotate(x_BTNH, make_rope(jnp.array([[position]]), len(vector), RopeSettings(100.0)))


def test_pairs_lie_half_a_head_apart_and_turn_at_their_own_speed() -> None:
    angles = 3.0, 3.0 / 10.0  # position * theta^0 and position * theta^(-2 / 4)
    expected = [np.cos(angles[0]), 2 * np.cos(angles[1]), np.sin(angles[0]), 2 * np.sin(angles[1])]
    np.testing.assert_allclose(turned([1.0, 2.0, 0.0, 0.0], 3)[0, 0, 0], expected, rtol=1e-6)


def test_position_zero_changes_nothing() -> None:
    assert turned([1.0, -2.0, 3.0, 0.5], 0)[0, 0, 0].tolist() == [1.0, -2.0, 3.0, 0.5]


def test_a_query_and_a_key_meet_by_the_distance_between_them() -> None:
    query, key = [0.3, -1.0, 2.0, 0.7], [1.1, 0.2, -0.4, 0.9]
    scores = [float(jnp.sum(turned(query, at + 5) * turned(key, at))) for at in (0, 1, 40)]
    np.testing.assert_allclose(scores, scores[0], rtol=1e-5)
    other = float(jnp.sum(turned(query, 3) * turned(key, 0)))
    assert abs(other - scores[0]) > 0.1
