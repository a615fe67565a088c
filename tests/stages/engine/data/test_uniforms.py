"""Random numbers from raw words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.uniforms import uniforms


@given(st.integers(0, 2**63 - 1), st.integers(1, 50))
def test_numbers_are_floats_from_0_below_1_and_go_on_where_the_last_ended(seed: int, num: int) -> None:
    generator = np.random.Philox(key=seed)
    found = np.concatenate([uniforms(generator, num), uniforms(generator, 3)])
    assert found.dtype == np.float32
    assert ((found >= 0) & (found < 1)).all()
    assert found.tolist() == uniforms(np.random.Philox(key=seed), num + 3).tolist()


def test_they_are_the_upper_24_bits_of_each_word() -> None:
    words = np.random.Philox(key=5).random_raw(3)
    assert uniforms(np.random.Philox(key=5), 3).tolist() == [(int(word) >> 40) / 2**24 for word in words]
