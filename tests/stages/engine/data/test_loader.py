"""The order of rows is a function of seed and counter."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.loader import batch_rows, permutation


def test_the_order_is_the_same_on_every_machine() -> None:
    assert permutation(8, seed=7, epoch=0) == (4, 3, 6, 2, 1, 0, 5, 7)
    assert permutation(8, seed=7, epoch=1) == (7, 6, 1, 4, 3, 2, 5, 0)
    assert batch_rows(8, 3, seed=7, batch=2) == [5, 7, 7]


@given(st.integers(1, 20), st.integers(1, 30), st.integers(0, 2**70), st.integers(1, 4))
def test_every_row_is_used_once_an_epoch_and_none_is_dropped(
    num_rows: int, batch_size: int, seed: int, epochs: int
) -> None:
    wanted = num_rows * epochs
    batches = [batch_rows(num_rows, batch_size, seed, batch) for batch in range(-(-wanted // batch_size))]
    assert all(len(rows) == batch_size for rows in batches)
    used = [row for rows in batches for row in rows][:wanted]
    assert Counter(used) == Counter(list(range(num_rows)) * epochs)
    for epoch in range(epochs):
        assert sorted(used[epoch * num_rows : (epoch + 1) * num_rows]) == list(range(num_rows))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {permutation(50, seed, epoch) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_a_batch_does_not_depend_on_those_before_it() -> None:
    in_order = [batch_rows(10, 4, 3, batch) for batch in range(6)]
    permutation.cache_clear()
    assert batch_rows(10, 4, 3, 5) == in_order[5]
