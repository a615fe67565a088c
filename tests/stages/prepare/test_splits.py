"""Which rows go into which split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.prepare.sizes import Split, apportion, most_rows
from stages.prepare.splits import ShortageError, choose_splits, first_of_each


def prompts(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


@given(st.integers(0, 500), st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
def test_parts_add_up_and_are_next_to_their_weights(total: int, weights: list[float]) -> None:
    counts = apportion(total, weights)
    assert sum(counts) == total
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) < 1


def test_three_to_one_of_a_thousand() -> None:
    assert apportion(1000, [3, 1]) == [750, 250]
    assert apportion(10, [1, 1, 1]) == [4, 3, 3]


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0.1, 10)), min_size=1, max_size=4))
def test_no_more_is_taken_than_there_is_and_as_much_as_the_weights_allow(sources: list[tuple[int, float]]) -> None:
    available, weights = [rows for rows, _ in sources], [weight for _, weight in sources]
    most = most_rows(available, weights)
    assert all(taken <= rows for taken, rows in zip(apportion(most, weights), available, strict=True))
    exact = min(rows * sum(weights) / weight for rows, weight in sources)
    assert most >= int(exact * (1 - 1e-9))


def test_of_equal_rows_the_first_of_the_first_source_is_kept() -> None:
    kept = first_of_each([prompts(1, 2, 1), prompts(), prompts(3, 2, 3)])
    assert [one.tolist() for one in kept] == [[True, True, False], [], [True, False, False]]


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=40, max_size=60), min_size=1, max_size=3),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_splits_share_neither_rows_nor_prompts(
    sources: list[list[int]], num_validation: int, num_held_out: int, seed: int
) -> None:
    sizes: dict[Split, int | None] = {"train": None, "validation": num_validation, "held_out": num_held_out}
    values = [prompts(*source) for source in sources]
    splits, elsewhere = choose_splits(values, [1.0] * len(values), sizes, seed)
    assert len(splits["validation"].rows) == num_validation
    assert len(splits["held_out"].rows) == num_held_out
    asked = {
        split: {int(values[source][row]) for source, row in zip(chosen.sources, chosen.rows, strict=True)}
        for split, chosen in splits.items()
    }
    assert not asked["held_out"] & asked["validation"]
    assert not (asked["held_out"] | asked["validation"]) & asked["train"]
    for source, rows in enumerate(elsewhere):
        assert {int(value) for value in values[source][rows]} <= asked["held_out"] | asked["validation"]
    taken = [
        (int(source), int(row))
        for chosen in splits.values()
        for source, row in zip(chosen.sources, chosen.rows, strict=True)
    ]
    assert len(set(taken)) == len(taken)


def test_every_stretch_of_a_mixture_has_about_its_proportions() -> None:
    values = [np.arange(900, dtype=np.uint64), np.arange(1000, 1300, dtype=np.uint64)]
    sizes: dict[Split, int | None] = {"train": 800, "validation": 40, "held_out": 8}
    splits, _ = choose_splits(values, [3, 1], sizes, seed=1)
    for split, chosen in splits.items():
        sources, size = chosen.sources, sizes[split] or 0
        assert np.bincount(sources).tolist() == [size * 3 // 4, size // 4]
        for end in range(4, size + 1, 4):
            assert abs(np.count_nonzero(sources[:end]) - end / 4) <= 1


def test_another_seed_gives_other_rows_and_the_same_seed_the_same() -> None:
    sizes: dict[Split, int | None] = {"train": 50, "validation": 0, "held_out": 10}
    first, again, other = (choose_splits([np.arange(100, dtype=np.uint64)], [1], sizes, seed)[0] for seed in (3, 3, 4))
    assert first["held_out"].rows.tolist() == again["held_out"].rows.tolist() != other["held_out"].rows.tolist()


def test_a_source_with_too_few_rows_is_named_with_what_it_has() -> None:
    values = [np.arange(10, dtype=np.uint64), np.arange(10, 13, dtype=np.uint64)]
    with pytest.raises(ShortageError) as told:
        choose_splits(values, [1, 1], {"train": 8, "validation": 0, "held_out": 2}, seed=0)
    assert (told.value.source, told.value.split, told.value.wanted, told.value.available) == (1, "train", 4, 2)
