"""Groups in rows with two limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.best_fit import best_fit

sizes = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 5)), max_size=30)


def fit(groups: list[tuple[int, int]], num_inputs: int, num_targets: int) -> list[list[int]]:
    inputs, targets = np.array(groups, np.int64).reshape(-1, 2).T
    return best_fit(inputs, targets, num_inputs, num_targets)


@given(sizes)
def test_each_group_is_in_one_row_and_no_row_holds_too_much(groups: list[tuple[int, int]]) -> None:
    rows = fit(groups, 10, 5)
    assert sorted(group for row in rows for group in row) == list(range(len(groups)))
    for row in rows:
        assert row
        assert sum(groups[group][0] for group in row) <= 10
        assert sum(groups[group][1] for group in row) <= 5


def test_the_largest_comes_first_and_each_fills_the_row_that_it_fills_best() -> None:
    assert fit([(3, 1), (6, 1), (7, 1), (4, 1)], 10, 9) == [[2, 0], [1, 3]]


def test_a_row_is_full_when_one_of_its_sizes_is() -> None:
    assert fit([(1, 3), (1, 3), (8, 1)], 10, 4) == [[2, 0], [1]]


def test_equal_groups_keep_their_order() -> None:
    assert fit([(5, 1)] * 5, 10, 9) == [[0, 1], [2, 3], [4]]


def test_nothing_needs_no_row() -> None:
    assert fit([], 10, 4) == []


def test_a_group_that_is_larger_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="group 1: 11 inputs and 2 targets do not fit a row's 10 and 4"):
        fit([(1, 1), (11, 2)], 10, 4)
