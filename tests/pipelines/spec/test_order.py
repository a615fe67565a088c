import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.order import CycleError, in_order


def test_what_is_free_keeps_its_place() -> None:
    assert in_order({"c": [], "a": ["b"], "b": [], "d": ["a", "c"]}) == ["c", "b", "a", "d"]


def test_a_cycle_is_named_from_one_of_its_nodes_back_to_it() -> None:
    with pytest.raises(CycleError) as raised:
        in_order({"start": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]})
    assert raised.value.cycle == ("a", "b", "c", "a")
    with pytest.raises(CycleError) as raised:
        in_order({"a": ["a"]})
    assert raised.value.cycle == ("a", "a")


def test_a_chain_longer_than_the_recursion_limit_is_ordered() -> None:
    needs = {str(n): [str(n + 1)] for n in range(5000)} | {"5000": []}
    assert in_order(needs)[0] == "5000"


@given(st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4), max_size=12))
def test_every_node_comes_after_its_needs_or_there_is_a_cycle(graph: dict[int, list[int]]) -> None:
    needs = {str(node): [str(need) for need in needed] for node, needed in graph.items()}
    try:
        order = in_order(needs)
    except CycleError as error:
        cycle = error.cycle
    else:
        assert sorted(order) == sorted(needs)
        position = {node: index for index, node in enumerate(order)}
        assert all(position[need] < position[node] for node in needs for need in needs[node] if need in position)
        return
    assert cycle[0] == cycle[-1]
    assert all(after in needs[before] for before, after in itertools.pairwise(cycle))
