"""How the groups of a dataset are laid out in rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.batching import Group, PackedRow, TargetShape, pack_rows
from stages.engine.data.layout import Layout, choose_layout, shared_prefix

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=4)


def groups(num: int, common: int, rest: int = 2, response: int = 2) -> list[Group]:
    """Groups of one response whose prompts have `common` equal tokens first."""
    return [
        Group((*range(100, 100 + common), *(row + 1 for _ in range(rest))), [(7,) * response]) for row in range(num)
    ]


def layout_of(rows: list[Group], micro_batch: int) -> Layout:
    longest = max(len(response) for group in rows for response in group.responses)
    return choose_layout(
        [group.prompt for group in rows],
        batch_size=len(rows),
        micro_batch=micro_batch,
        group_size=1,
        max_response=longest,
    )


@given(prompts)
def test_a_shared_prefix_is_common_to_all_leaves_a_token_and_cannot_be_longer(prompts: list[list[int]]) -> None:
    size = shared_prefix(prompts)
    assert all(prompt[:size] == prompts[0][:size] for prompt in prompts)
    assert all(len(prompt) > size for prompt in prompts)
    longer = [tuple(prompt[: size + 1]) for prompt in prompts]
    assert len(set(longer)) > 1 or min(map(len, prompts)) == size + 1


def test_with_a_long_common_beginning_a_micro_batch_is_one_row() -> None:
    rows = groups(num=4, common=40)
    layout = layout_of(rows, micro_batch=2)
    assert layout.prefix == 40
    batch = layout.pack(rows[2:])
    assert batch.tokens.shape == (1, 48)
    expected = PackedRow(rows[2].prompt[:40], [Group(row.prompt[40:], row.responses) for row in rows[2:]])
    for found, field in zip(batch, pack_rows([expected], TargetShape(2, 1, 2), 48), strict=True):
        assert found.tolist() == field.tolist()


def test_without_one_each_group_has_a_row() -> None:
    rows = groups(num=4, common=0, rest=20)
    layout = layout_of(rows, micro_batch=2)
    assert layout.prefix == 0
    batch = layout.pack(rows[:2])
    assert batch.tokens.shape == (2, 32)
    assert batch.tokens[0, :20].tolist() == [1] * 20


def test_one_row_is_chosen_only_where_it_saves_a_quarter_of_the_inputs() -> None:
    # Two rows of 32 against one of 48, or of 64.
    assert layout_of(groups(num=2, common=20, rest=8), micro_batch=2).prefix == 20
    assert layout_of(groups(num=2, common=8, rest=20), micro_batch=2).prefix == 0
    assert layout_of(groups(num=2, common=26, rest=1), micro_batch=1).prefix == 0


def test_widths_follow_the_content_in_few_steps() -> None:
    layout = Layout(prefix=0, micro_batch=1, group_size=1, max_response=1, max_width=1000)
    widths = {layout.pack([Group((1,) * size, [(2,)])]).tokens.shape[1] for size in range(1, 1001)}
    assert widths == {128 * n for n in range(1, 9)}


@pytest.mark.parametrize("common", [0, 40])
def test_what_a_micro_batch_lacks_has_no_targets_and_values_lie_as_targets_do(common: int) -> None:
    rows = [Group(group.prompt, [(7, 8), (9,)]) for group in groups(num=3, common=common)]
    layout = choose_layout([row.prompt for row in rows], batch_size=4, micro_batch=4, group_size=2, max_response=2)
    assert bool(layout.prefix) == bool(common)
    batch = layout.pack(rows)
    values = np.arange(1, 13, dtype=np.float32).reshape(3, 2, 2)
    spread = layout.spread(values)
    assert spread.shape == batch.targets.shape == ((1, 16) if common else (4, 4))
    assert batch.targets[batch.target_mask].tolist() == [7, 8, 9] * 3
    assert spread[batch.target_mask].tolist() == [1, 2, 3, 5, 6, 7, 9, 10, 11]


def test_parts_cover_all_groups_in_order() -> None:
    layout = layout_of(groups(num=5, common=0), micro_batch=2)
    assert [list(range(5))[part] for part in layout.parts(5)] == [[0, 1], [2, 3], [4]]


def test_a_group_of_another_dataset_that_does_not_fit_is_refused() -> None:
    layout = layout_of(groups(num=2, common=0), micro_batch=1)
    with pytest.raises(ValueError, match="do not fit"):
        layout.pack([Group((1,), [(2,) * 9])])


@pytest.mark.parametrize("common", [0, 40])
@pytest.mark.parametrize(("num_groups", "shares"), [(6, [2, 2, 2]), (5, [2, 2, 1]), (4, [2, 2, 0]), (1, [1, 0, 0])])
def test_devices_have_equally_many_rows_side_by_side_and_share_the_groups_evenly(
    common: int, num_groups: int, shares: list[int]
) -> None:
    rows = [Group(group.prompt, [(7, 8), (9,)]) for group in groups(num=6, common=common)]
    prompts = [row.prompt for row in rows]
    layout = choose_layout(prompts, batch_size=6, micro_batch=4, group_size=2, max_response=2, num_devices=3)
    assert bool(layout.prefix) == bool(common)
    assert layout.parts(7) == [slice(0, 6), slice(6, 12)]
    batch = layout.pack(rows[:num_groups])
    values = np.arange(num_groups * 4, dtype=np.float32).reshape(num_groups, 2, 2)
    spread = layout.spread(values)
    assert spread.shape == batch.targets.shape
    assert len(batch.tokens) == (3 if common else 6)
    masks = np.split(batch.target_mask, 3)
    assert [int(mask.sum()) for mask in masks] == [3 * share for share in shares]
    assert batch.targets[batch.target_mask].tolist() == [7, 8, 9] * num_groups
    assert spread[batch.target_mask].tolist() == [4 * n + at for n in range(num_groups) for at in (0, 1, 2)]
