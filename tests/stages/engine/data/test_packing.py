"""Groups of an update in micro-batches of one shape."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stages.engine.data.batching import ROOT, Batch, Group, group_width
from stages.engine.data.packing import Packing, choose_packing, count_targets, filling, spread

Prediction = tuple[int, int, list[tuple[int, int]], int]
"""Group, response, tokens and positions that the source of a target sees, and the target."""


@st.composite
def group(draw: st.DrawFn) -> Group:
    ids = st.integers(1, 9)
    responses = draw(st.lists(st.lists(ids, min_size=1, max_size=6), min_size=1, max_size=2))
    learnt = None
    if draw(st.booleans()):
        learnt = [np.array([*draw(st.lists(st.booleans(), min_size=n, max_size=n)), True]) for n in map(len, responses)]
        responses = [[*response, 2] for response in responses]
    prompt = draw(st.lists(ids, min_size=1, max_size=6))
    if draw(st.booleans()):
        return Group(np.array(prompt, np.int32), [np.array(response, np.int32) for response in responses], learnt)
    return Group(prompt, responses, learnt)


groups = st.lists(group(), min_size=1, max_size=9)
systems = st.lists(st.integers(10, 19), max_size=9)


few = settings(max_examples=40, deadline=None, phases=[Phase.generate])


def begin(system: Sequence[int], groups: Sequence[Group]) -> list[Group]:
    """Groups that all begin alike."""
    return [one._replace(prompt=np.array([*system, *one.prompt], np.int32)) for one in groups]


def wanted(groups: Sequence[Group]) -> list[Prediction]:
    """Of each response alone, what predicts each token that is learnt."""
    out: list[Prediction] = []
    for number, (prompt, responses, learnt) in enumerate(groups):
        for index, response in enumerate(responses):
            ids = [*map(int, prompt), *map(int, response)]
            for at in range(len(response)):
                if learnt is None or learnt[index][at]:
                    stop = len(prompt) + at
                    out.append((number, index, list(zip(ids[:stop], range(stop), strict=True)), ids[stop]))
    return out


def visible(batch: Batch, row: int, index: int) -> list[int]:
    """Inputs that the one at `index` attends to, by the rule of a batch."""
    segment, branch = batch.segment_ids[row], batch.branch_ids[row]
    if segment[index] == 0:
        return [index]
    return [k for k in range(index + 1) if segment[k] in (ROOT, segment[index]) and branch[k] in (0, branch[index])]


def found(packing: Packing, groups: Sequence[Group]) -> list[Prediction]:
    """Of all micro-batches, what predicts each target."""
    out: list[Prediction] = []
    for batch, sequences, numbers in packing.pack(groups):
        for row, slot in zip(*np.nonzero(batch.target_mask), strict=True):
            place, response = divmod(int(sequences[row, slot]), packing.group_size)
            seen = visible(batch, row, int(batch.target_sources[row, slot]))
            tokens = zip(batch.tokens[row, seen].tolist(), batch.positions[row, seen].tolist(), strict=True)
            out.append((int(numbers[row, place]) - 1, response, list(tokens), int(batch.targets[row, slot])))
    return sorted(out, key=lambda prediction: (prediction[0], prediction[1], len(prediction[2])))


@few
@given(systems, groups, st.integers(1, 4), st.sampled_from([1, 2, 8]))
def test_each_target_is_there_once_and_sees_its_prompt_and_its_response_so_far(
    system: list[int], groups: list[Group], micro_batch: int, num_devices: int
) -> None:
    groups = begin(system, groups)
    packing = choose_packing(groups, batch_size=len(groups), micro_batch=micro_batch, num_devices=num_devices)
    assert found(packing, groups) == wanted(groups)


@few
@given(systems, groups, st.integers(1, 4), st.sampled_from([1, 2, 8]))
def test_any_update_fits_the_shape_that_was_chosen_for_the_dataset(
    system: list[int], groups: list[Group], batch_size: int, num_devices: int
) -> None:
    groups = begin(system, groups)
    packing = choose_packing(groups, batch_size=batch_size, micro_batch=2, num_devices=num_devices)
    shapes = [
        (batch.tokens.shape, batch.targets.shape, batch.target_mask.shape, sequences.shape, numbers.shape)
        for start in range(len(groups))
        for batch, sequences, numbers in packing.pack((groups[start:] + groups)[:batch_size])
    ]
    by_target = (packing.num_rows, packing.num_targets)
    assert set(shapes) == {
        ((packing.num_rows, packing.width), by_target, by_target, by_target, (packing.num_rows, packing.max_groups))
    }
    assert packing.num_rows % num_devices == 0
    longest = max(map(group_width, groups))
    assert packing.num_rows * packing.width <= num_devices * 2 * (-(-longest // 16) * 16)


@few
@given(systems, groups)
def test_owners_and_values_of_groups_follow_them_into_their_rows(system: list[int], groups: list[Group]) -> None:
    groups = begin(system, groups)
    packing = choose_packing(groups, batch_size=len(groups), micro_batch=3)
    values = np.arange(1, len(groups) + 1, dtype=np.float32)
    owned: list[tuple[int, int, int]] = []
    for packed in packing.pack(groups):
        np.testing.assert_array_equal(spread(packed, values), packed.groups)
        assert spread(packed, values[:, None]).shape == (*packed.groups.shape, 1)
        batch, owners = packed.batch, packing.owners(packed)
        real = batch.segment_ids != 0
        assert set(owners[batch.positions < packing.num_shared].tolist()) <= {0}
        columns = (owners[real], batch.branch_ids[real], batch.positions[real])
        owned += zip(*(column.tolist() for column in columns), strict=True)
    assert {place for place in owned if place[0]} == {
        (number, branch, position)
        for number, (prompt, responses, _) in enumerate(groups, start=1)
        for branch, start, stop in [
            (0, packing.num_shared, len(prompt)),
            *((index + 1, len(prompt), len(prompt) + len(one) - 1) for index, one in enumerate(responses)),
        ]
        for position in range(start, stop)
    }


def test_a_row_holds_groups_one_after_the_other() -> None:
    packing = Packing(0, 0, width=8, num_targets=5, max_groups=3, group_size=2, num_rows=2)
    pair = Group([5, 6], [[7, 2], [8, 9, 2]])
    talk = Group([3], [[4, 2, 3, 2]], [np.array([True, True, False, True])])
    (packed,) = packing.pack([talk, pair])
    batch = packed.batch
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 0, 0, 0], [3, 4, 2, 3, 0, 0, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 2, 3, 0, 0, 0], [0, 1, 2, 3, 0, 0, 0, 0]]
    assert batch.segment_ids.tolist() == [[2] * 5 + [0] * 3, [2] * 4 + [0] * 4]
    assert batch.branch_ids.tolist() == [[0, 0, 1, 2, 2, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0, 0]]
    assert batch.target_sources.tolist() == [[1, 2, 1, 3, 4], [0, 1, 3, 0, 0]]
    assert batch.targets.tolist() == [[7, 2, 8, 9, 2], [4, 2, 2, 0, 0]]
    assert batch.target_mask.sum(axis=1).tolist() == [5, 3]
    assert packed.sequences.tolist() == [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]
    assert packed.groups.tolist() == [[2, 0, 0], [1, 0, 0]]
    assert filling([batch]) == (9, 16, 8, 10)
    assert filling([batch]).padding_share == 7 / 16


def test_the_same_groups_are_packed_the_same_each_time() -> None:
    groups = make_groups(50)
    packing = choose_packing(groups, batch_size=50, micro_batch=4)
    assert packing == choose_packing(groups, batch_size=50, micro_batch=4)
    for first, second in zip(packing.pack(groups), packing.pack(groups), strict=True):
        np.testing.assert_array_equal(first.groups, second.groups)
        np.testing.assert_array_equal(first.batch.tokens, second.batch.tokens)


def make_groups(number: int, system: int = 0) -> list[Group]:
    """Groups as long as chats are: most are short, some are ten times as long."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.3, 0.7, number), 16, 1024).astype(int)
    shares = (lengths * rng.uniform(0.3, 0.8, number)).astype(int)
    head = np.arange(system, dtype=np.int32)
    return [
        Group(np.concatenate([head, rng.integers(1, 99, size - own, np.int32)]), [rng.integers(1, 99, own, np.int32)])
        for size, own in zip(lengths, shares, strict=True)
    ]


@pytest.mark.parametrize(("system", "num_devices"), [(0, 1), (200, 1), (0, 2)])
def test_little_of_a_realistic_mix_is_padding(system: int, num_devices: int) -> None:
    groups = make_groups(640, system)
    packing = choose_packing(groups, batch_size=64, micro_batch=8, num_devices=num_devices)
    assert packing.prefix == system
    parts = [part for start in range(0, 640, 64) for part in packing.pack(groups[start : start + 64])]
    assert filling([part.batch for part in parts]).padding_share < 0.1


def test_what_all_begin_with_stands_once_in_a_row_and_makes_it_wider() -> None:
    groups = make_groups(64, system=600)
    packing = choose_packing(groups, batch_size=64, micro_batch=8)
    assert packing.prefix == packing.num_shared == 600
    inputs = filling([part.batch for part in packing.pack(groups)]).inputs
    assert inputs < sum(map(group_width, groups)) - 40 * 600


def test_a_group_of_another_dataset_is_refused() -> None:
    groups = [Group([1, 2, 3, number], [[7, 8]]) for number in range(20, 24)]
    packing = Packing(3, 3, width=16, num_targets=4, max_groups=2, group_size=1, num_rows=1)
    assert len(packing.pack(groups)) == 2
    with pytest.raises(ValueError, match="group 1: it begins with other tokens than group 0, though 3 are shared"):
        packing.pack([groups[0], Group([1, 2, 4, 5], [[7, 8]])])
    with pytest.raises(ValueError, match="group 0: 14 inputs and 1 targets do not fit a row's 13 and 4"):
        packing.pack([Group([1, 2, 3, *range(14)], [[7]])])
    with pytest.raises(ValueError, match="group 1: a prompt of 4 tokens and 2 responses; there must be"):
        packing.pack([groups[0], Group([1, 2, 3, 4], [[7], [8]])])
    with pytest.raises(ValueError, match="group 0: a prompt of 0 tokens and 1 responses"):
        packing.pack([Group([], [[7]])])
    for group in (Group([1], [[]]), Group([1], [[2, 3]], [np.array([False, False])])):
        with pytest.raises(ValueError, match="group 0: a response is empty, or none of its tokens is a target"):
            packing.pack([group])


def test_an_update_without_groups_has_no_micro_batch() -> None:
    assert Packing(0, 0, width=16, num_targets=4, max_groups=2, group_size=1, num_rows=1).pack([]) == []


def test_targets_of_a_group_are_those_that_are_learnt() -> None:
    assert count_targets(Group([1], [[2, 3], [4]])) == 3
    assert count_targets(Group([1], [[2, 3], [4]], [np.array([False, True]), np.array([True])])) == 2
