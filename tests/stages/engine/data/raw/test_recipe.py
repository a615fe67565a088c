"""Rows that a user's own function makes."""

from pathlib import Path

import pytest

from stages.engine.data.raw.recipe import rows_of_recipe
from stages.errors import UserError

RECIPE = """
from dataclasses import dataclass

@dataclass
class Pair:
    number: int

def rows():
    for number in range(3):
        yield {"question": str(Pair(number).number), "answer": "x"}
    yield 7

def listed():
    return [{"text": "a"}]

def broken():
    yield {"text": "a"}
    raise KeyError("no such word")

def nothing():
    pass
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE)
    return path


def test_rows_are_what_the_function_yields_or_returns(recipe: Path) -> None:
    rows = list(rows_of_recipe(recipe, "rows"))
    assert [row.fields for row in rows[:3]] == [{"question": str(number), "answer": "x"} for number in range(3)]
    assert rows[3].problem == "expected a JSON object, not a number"
    assert rows[3].place == f"{recipe}:rows: row 4"
    assert [row.fields for row in rows_of_recipe(recipe, "listed")] == [{"text": "a"}]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", r"recipe\.py:broken: it fails in line 18: KeyError: 'no such word'"),
        ("nothing", r"recipe\.py:nothing: expected it to yield rows or return a list, not NoneType"),
        ("other", r"recipe\.py has no function 'other'; it has rows, listed, broken, nothing"),
    ],
)
def test_a_recipe_that_fails_is_named_with_its_line(recipe: Path, function: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(rows_of_recipe(recipe, function))


def test_a_recipe_that_is_no_python_is_named_too(recipe: Path) -> None:
    recipe.write_text("import no_such_module_anywhere")
    with pytest.raises(UserError, match=r"it fails in line 1: ModuleNotFoundError: .*no_such_module_anywhere"):
        list(rows_of_recipe(recipe, "rows"))
