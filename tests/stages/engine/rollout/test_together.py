"""Responses of several processes put together."""

import numpy as np
import pytest

from stages.engine.rollout.native.sampler import Responses
from stages.engine.rollout.together import Drawn, _drawn, _responses

TOKENS = [[(5, 6, 2), (7,)], [(8, 2), (9, 9, 9)], [(1, 1, 1), (2,)]]


def responses(tokens: list[list[tuple[int, ...]]]) -> Responses:
    lengths = np.array([[len(row) for row in group] for group in tokens])
    logprobs = np.where(np.arange(3) < lengths[:, :, None], -0.5 * lengths[:, :, None], 0).astype(np.float32)
    return Responses(tokens, logprobs, lengths < 3)


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_shares_of_one_size_make_the_whole_in_order_and_what_is_drawn_twice_is_dropped(num_processes: int) -> None:
    size = -(-len(TOKENS) // num_processes)
    shares = [
        _drawn(responses([TOKENS[min(at, 2)] for at in range(process * size, (process + 1) * size)]))
        for process in range(num_processes)
    ]
    found = _responses(Drawn(*map(np.stack, zip(*shares, strict=True))), len(TOKENS))
    expected = responses(TOKENS)
    assert found.tokens == expected.tokens
    np.testing.assert_array_equal(found.logprobs, expected.logprobs)
    np.testing.assert_array_equal(found.ended, expected.ended)
