"""Problems drawn from generated tasks."""

from collections.abc import Mapping
from itertools import islice

import pytest
from pydantic import JsonValue

from stages.engine.data.sources import Problem, distinct_problems
from stages.errors import UserError
from stages.sources.reasoning_gym import Task

SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def test_a_task_gives_every_problem_that_it_has_once_and_ends() -> None:
    problems = list(distinct_problems(Task("chain_sum", SMALL), seed=0))
    signs = {"+": lambda a, b: a + b, "-": lambda a, b: a - b}
    expected = {
        Problem(f"State the final answer to the following arithmetic problem: {a} {sign} {b} =", str(apply(a, b)))
        for sign, apply in signs.items()
        for a in range(10)
        for b in range(10)
    }
    assert set(problems) == expected
    assert len(problems) == 200


def test_the_same_seed_gives_the_same_problems_and_near_seeds_share_few() -> None:
    task = Task("chain_sum", {"min_digits": 4, "max_digits": 4})
    first, again, near = (list(islice(distinct_problems(task, seed), 50)) for seed in (0, 0, 1))
    assert first == again
    assert not set(first) & set(near)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("chain_sums", {}, r"no task 'chain_sums' \(did you mean 'chain_sum'\?\)"),
        ("zzz", {}, "no task 'zzz'$"),
        ("chain_sum", {"max_digit": 2}, r"'chain_sum' has no parameter 'max_digit' \(did you mean 'max_digits'\?\)"),
        ("chain_sum", {"zzz": 2}, "'chain_sum' has no parameter 'zzz'; it has min_terms, max_terms, "),
        ("chain_sum", {"min_terms": 9}, "task 'chain_sum': max_terms must be >= min_terms"),
        ("chain_sum", {"min_terms": "two"}, "task 'chain_sum': "),
        ("rush_hour", {}, "task 'rush_hour': the answer None is not text"),
    ],
)
def test_a_wrong_task_or_parameter_is_named(name: str, params: Mapping[str, JsonValue], message: str) -> None:
    with pytest.raises(UserError, match=message):
        next(distinct_problems(Task(name, params), seed=0))
