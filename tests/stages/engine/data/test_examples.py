"""How a dataset of examples is laid out in rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.data.batching import Branch, Tree, pack_trees
from stages.engine.data.examples import Example, choose_layout, shared_prefix

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=4)


def examples(num: int, common: int, rest: int = 2, response: int = 2) -> list[Example]:
    """Examples whose prompts have `common` equal tokens first."""
    return [
        Example(f"row-{row}", (*range(100, 100 + common), *(row + 1 for _ in range(rest))), (7,) * response)
        for row in range(num)
    ]


@given(prompts)
def test_a_shared_prefix_is_common_to_all_leaves_a_token_and_cannot_be_longer(prompts: list[list[int]]) -> None:
    size = shared_prefix(prompts)
    assert all(prompt[:size] == prompts[0][:size] for prompt in prompts)
    assert all(len(prompt) > size for prompt in prompts)
    longer = [tuple(prompt[: size + 1]) for prompt in prompts]
    assert len(set(longer)) > 1 or min(map(len, prompts)) == size + 1


def test_a_long_common_beginning_makes_a_micro_batch_one_tree() -> None:
    rows = examples(num=4, common=40)
    layout = choose_layout(rows, micro_batch=2)
    assert layout.prefix == 40
    one, other = layout.pack_all(rows)
    assert one.tokens.shape == other.tokens.shape == (1, 48)
    expected = Tree(rows[2].prompt[:40], [Branch(row.prompt[40:], row.response) for row in rows[2:]])
    for found, field in zip(other, pack_trees([expected], max_response=2, width=48), strict=True):
        assert found.tolist() == field.tolist()


def test_without_one_each_example_has_a_row() -> None:
    rows = examples(num=4, common=0, rest=20)
    layout = choose_layout(rows, micro_batch=2)
    assert layout.prefix == 0
    one, _ = layout.pack_all(rows)
    assert one.tokens.shape == (2, 32)
    assert one.tokens[0, :20].tolist() == [1] * 20


def test_a_tree_is_chosen_only_where_it_halves_the_tokens_computed() -> None:
    # Two rows of 32 against a tree of 32 or 48.
    assert choose_layout(examples(num=2, common=26, rest=1), micro_batch=2).prefix == 26
    assert choose_layout(examples(num=2, common=20, rest=8), micro_batch=2).prefix == 0
    assert choose_layout(examples(num=2, common=26, rest=1), micro_batch=1).prefix == 0


def test_every_micro_batch_has_one_shape_whatever_examples_are_in_it() -> None:
    rows = [Example("a", (1,) * 3, (2,)), Example("b", (3,) * 9, (4, 5)), Example("c", (6,), (7,) * 12)]
    layout = choose_layout(rows, micro_batch=1)
    assert len({tuple(field.shape for field in batch) for batch in layout.pack_all(rows)}) == 1
    assert (layout.width, layout.max_response) == (16, 12)


def test_an_example_of_another_dataset_that_does_not_fit_is_refused() -> None:
    layout = choose_layout(examples(num=2, common=0), micro_batch=1)
    with pytest.raises(ValueError, match="do not fit"):
        layout.pack([Example("long", (1,) * 40, (2,))])
