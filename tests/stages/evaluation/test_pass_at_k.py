"""The estimate against all choices of k answers."""

from itertools import combinations

import pytest

from stages.evaluation.pass_at_k import pass_at_k


@pytest.mark.parametrize("num_correct", range(6))
@pytest.mark.parametrize("k", range(1, 6))
def test_it_is_the_share_of_choices_with_a_right_answer(num_correct: int, k: int) -> None:
    answers = [True] * num_correct + [False] * (5 - num_correct)
    choices = list(combinations(answers, k))
    assert pass_at_k(5, num_correct, k) == pytest.approx(sum(map(any, choices)) / len(choices))
