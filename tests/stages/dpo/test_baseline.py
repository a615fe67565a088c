"""Prompts with responses that are not their own."""

import numpy as np

from stages.dpo.baseline import mismatched
from stages.engine.data.batching import Group


def test_mismatched_prompts_get_the_responses_of_the_next_row_as_far_as_they_fit() -> None:
    groups = [Group((1, 2), [(3, 4), (5,)]), Group((6, 7, 8), [(9, 10), (11, 12)])]
    first, second = mismatched(groups, max_tokens=4)
    assert (first.prompt, first.responses) == ((1, 2), [(9, 10), (11, 12)])
    assert (second.prompt, second.responses) == ((6, 7, 8), [(3,), (5,)])
    assert second.learnt is not None
    assert [mask.tolist() for mask in second.learnt] == [[True], [True]]
    assert np.array_equal(mismatched(groups[:1], 10)[0].responses[0], groups[0].responses[0])
