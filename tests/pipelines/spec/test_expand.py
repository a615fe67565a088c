"""Fan-out: which instances a stage has, and how they are called."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.diagnostics import Place, Problems
from pipelines.spec.expand import MAX_INSTANCES, Instance, expand, label, selects
from pipelines.spec.tree import Scalar, Table
from pipelines.spec.yaml_text import read_yaml


def expanded(text: str) -> tuple[dict[str, tuple[Instance, ...]], list[str]]:
    problems = Problems()
    tree = read_yaml(text, lambda line, column: Place("f", line + 1, column + 1), problems)
    assert isinstance(tree, Table)
    tables = {name: entry.value for name, entry in tree.entries.items() if isinstance(entry.value, Table)}
    return expand(tables, problems), [str(found) for found in problems.found]


def ids(text: str) -> list[list[str]]:
    instances, found = expanded(text)
    assert found == []
    return [[instance.id for instance in group] for group in instances.values()]


def test_a_stage_without_fan_out_is_one_instance_of_its_own_name() -> None:
    assert ids("sft: {uses: sft}") == [["sft"]]


def test_a_matrix_gives_the_product_of_its_axes_in_their_order() -> None:
    assert ids("dpo: {matrix: {beta: [0.05, 0.1], lr: [1e-6, 2]}}") == [
        ["dpo[beta=0.05,lr=1e-06]", "dpo[beta=0.05,lr=2]", "dpo[beta=0.1,lr=1e-06]", "dpo[beta=0.1,lr=2]"]
    ]


def test_for_each_goes_with_every_instance_whatever_the_order_of_the_file() -> None:
    text = "c: {for_each: b}\nb: {for_each: a}\na: {matrix: {x: [1, 2]}}"
    assert ids(text) == [["c[x=1]", "c[x=2]"], ["b[x=1]", "b[x=2]"], ["a[x=1]", "a[x=2]"]]
    instances, _ = expanded(text)
    assert instances["c"][1].each == instances["b"][1]
    assert instances["b"][1].each == instances["a"][1]


def test_a_matrix_beside_for_each_multiplies_the_instances() -> None:
    text = "a: {matrix: {x: [1, 2]}}\nb: {for_each: a, matrix: {t: [true, false]}}"
    assert ids(text)[1] == ["b[x=1,t=true]", "b[x=1,t=false]", "b[x=2,t=true]", "b[x=2,t=false]"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {matrix: [1]}", "f:1:5: stages.a.matrix: expected lists of values by name, such as {beta: [0.1, 0.3]}"),
        ("a: {matrix: {}}", "f:1:5: stages.a.matrix: expected lists of values by name"),
        ("a: {matrix: {x: 3}}", "f:1:14: stages.a.matrix.x: expected a list of at least one value"),
        ("a: {matrix: {x: []}}", "f:1:14: stages.a.matrix.x: expected a list of at least one value"),
        ("a: {matrix: {x: [1, ~]}}", "f:1:21: stages.a.matrix.x.1: expected a number, text, true or false"),
        ("a: {matrix: {x: [.inf]}}", "f:1:18: stages.a.matrix.x.0: expected a number, text, true or false"),
        ("a: {matrix: {x: [[1]]}}", "f:1:18: stages.a.matrix.x.0: expected a number, text, true or false"),
        ("a: {matrix: {x: [1, b]}}", 'f:1:21: stages.a.matrix.x.1: the values of an axis are of one kind, but "b" is'),
        ("a: {matrix: {x: [1, true]}}", "f:1:21: stages.a.matrix.x.1: the values of an axis are of one kind"),
        ("a: {matrix: {x: [1, 1.0]}}", "f:1:21: stages.a.matrix.x.1: 1.0 stands here twice"),
        ("a: {for_each: b}", "f:1:5: stages.a.for_each: unknown stage `b`"),
        ("a: {for_each: dpp}\ndpo: {matrix: {x: [1]}}", "f:1:5: stages.a.for_each: unknown stage `dpp` (did you mean"),
        ("a: {for_each: [b]}", "f:1:5: stages.a.for_each: expected the name of a fanned-out stage"),
        ("a: {for_each: b}\nb: {}", "f:1:5: stages.a.for_each: `b` is a single stage: it has neither `matrix` nor"),
        ("a: {for_each: b}\nb: {for_each: a}", "f:2:5: stages.b.for_each: stages go with each other: a → b → a"),
        ("a: {for_each: a}", "f:1:5: stages.a.for_each: stages go with each other: a → a"),
        (
            "a: {matrix: {x: [1]}}\nb: {for_each: a, matrix: {x: [1]}}",
            "f:2:18: stages.b.matrix: `a` has an axis `x` already",
        ),
    ],
)
def test_a_fault_is_told_once_and_leaves_the_stage_without_instances(text: str, message: str) -> None:
    instances, found = expanded(text)
    assert len(found) == 1, found
    assert found[0].startswith(message), found[0]
    assert any(group == () for group in instances.values())


def test_the_number_of_instances_is_bounded_before_any_is_made() -> None:
    axis = f"[{', '.join(str(number) for number in range(400))}]"
    _, found = expanded(f"a: {{matrix: {{x: {axis}, y: {axis}, z: {axis}, w: {axis}}}}}")
    assert found == [f"f:1:5: stages.a.matrix: more than {MAX_INSTANCES} instances in this pipeline"]
    _, found = expanded(f"a: {{matrix: {{x: {axis}}}}}\nb: {{for_each: a}}\nc: {{for_each: b}}")
    assert found == [f"f:3:5: stages.c.for_each: more than {MAX_INSTANCES} instances in this pipeline"]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("*", 4),
        ("beta=0.1", 2),
        ("lr=1e-06,beta=0.10", 1),
        ("beta=0.1, lr=0.000001", 1),
        ("beta=0.2", 0),
        ("gamma=0.1", 0),
        ("", 0),
        ("beta", 0),
    ],
)
def test_a_selector_names_values_in_any_order_and_form(selector: str, chosen: int) -> None:
    instances, _ = expanded("dpo: {matrix: {beta: [0.05, 0.1], lr: [1e-6, 2]}}")
    assert sum(selects(selector, instance) for instance in instances["dpo"]) == chosen


def test_unusual_text_is_shown_by_what_can_be_read_of_it() -> None:
    assert label("cosine-1.5") == "cosine-1.5"
    assert label("package://models/Small Instruct.gguf#sha256=b1") == "Instruct.gguf-sha256-b1-61eb67"
    assert label("a,b") != label("a b") != label("a]b")


scalars = st.integers(-99, 99) | st.floats(-9, 9) | st.text(max_size=40)
axes = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.integers(-99, 99), min_size=1, max_size=3, unique=True)
    | st.lists(st.text(max_size=40), min_size=1, max_size=3, unique=True),
    min_size=1,
)


@given(axes)
def test_every_instance_has_its_own_name_and_is_chosen_by_it_alone(values: Mapping[str, list[int | str]]) -> None:
    place = Place(str(Path("f")), 1, 1)
    cells = [dict(zip(values, cell, strict=True)) for cell in itertools.product(*values.values())]
    instances = [Instance("s", "s", {axis: Scalar(value, place) for axis, value in cell.items()}) for cell in cells]
    selectors = [",".join(f"{axis}={label(value)}" for axis, value in cell.items()) for cell in cells]
    assert len(set(selectors)) == len(cells)
    for selector, own in zip(selectors, instances, strict=True):
        assert [instance for instance in instances if selects(selector, instance)] == [own]
