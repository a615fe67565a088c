import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.spec.diagnostics import Place, Problems
from pipelines.spec.tree import Table, to_plain
from pipelines.spec.yaml_text import MAX_DEPTH, read_yaml


def read(text: str) -> tuple[object, list[str]]:
    problems = Problems()
    tree = read_yaml(text, lambda line, column: Place("f", line + 1, column + 1), problems)
    return (None if tree is None else to_plain(tree)), [str(found) for found in problems.found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.0e+3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12:30:00", "12:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!float 12", 12.0),
        ("-.inf", -math.inf),
        ("(2,2)", "(2,2)"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    found, problems = read(f"key: {text}\n")
    assert problems == []
    assert found == {"key": value}
    assert isinstance(found, dict)
    assert type(found["key"]) is type(value)


def test_nan_is_a_number() -> None:
    found, _ = read("key: .nan")
    assert isinstance(found, dict)
    assert isinstance(found["key"], float)
    assert math.isnan(found["key"])


def test_anchors_and_aliases_repeat_a_value() -> None:
    assert read("a: &x {b: [1]}\nc: *x\n") == ({"a": {"b": [1]}, "c": {"b": [1]}}, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1:1: the file is empty; a pipeline starts with `version: 1`"),
        ("# nothing\n", "f:1:1: the file is empty; a pipeline starts with `version: 1`"),
        ("a: {b: 1, b: 2}", "f:1:11: a.b: duplicate key (first in line 1)"),
        ("a: !!python/name:os.system x", "f:1:4: a: the tag `python/name:os.system` is not allowed"),
        ("a: !mine [1]", "f:1:4: a: the tag `!mine` is not allowed"),
        ("a: !!int x", "f:1:4: a: `x` is no value of the tag `!!int`"),
        ("a: &x [*x]", "f:1:8: a.0: the alias `*x` has no anchor `&x` that ends before it"),
        ("a: *x", "f:1:4: a: the alias `*x` has no anchor `&x` that ends before it"),
        ("a: {1: 2}", "f:1:5: a: a key must be text: quote it as '1'"),
        ("<<: {a: 1}", "f:1:1: merge keys (`<<`) are not part of YAML 1.2"),
        ("[a]: 1", "f:1:1: a list or mapping cannot be a key"),
        ("a: 1\n---\nb: 1", "f:2:1: a second document starts here; one is expected"),
        ("a: b: c", "f:1:5: not YAML: mapping values are not allowed here"),
        ("a: [1,\n2", "f:2:2: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb\0", "f:2:2: not text: the character U+0000 is not allowed in YAML"),
        ('a: "\\ud800"', "f:1:4: a: half of a surrogate pair is no character"),
    ],
)
def test_what_is_refused_is_told_with_its_place(text: str, message: str) -> None:
    _, problems = read(text)
    assert len(problems) == 1
    assert problems[0].startswith(message)


def test_several_duplicate_keys_are_reported_at_once() -> None:
    _, problems = read("a: 1\na: 2\nb: {c: 1, c: 2}\n")
    assert [problem.split(":")[1] for problem in problems] == ["2", "3"]


def test_nesting_is_bounded() -> None:
    assert read("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))[1] != []
    assert read("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)[1] == []


def test_aliases_that_multiply_are_refused_quickly() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "more than 50000 values" in read("\n".join(lines))[1][0]


def test_places_count_characters() -> None:
    problems = Problems()
    tree = read_yaml("ä: {ö: ü}\n", lambda line, column: Place("f", line + 1, column + 1), problems)
    assert isinstance(tree, Table)
    inner = tree.get("ä")
    assert isinstance(inner, Table)
    assert inner.entries["ö"].key_place == Place("f", 1, 5)
    assert inner.entries["ö"].value.place == Place("f", 1, 8)


@given(st.text())
def test_any_text_is_read_or_refused_but_never_raises(text: str) -> None:
    value, problems = read(text)
    assert problems or value is not None or text.strip() != ""
