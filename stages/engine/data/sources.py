"""Problems that a task generates, each only once."""

import dataclasses
import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import JsonValue

from stages.errors import UserError
from stages.sources.reasoning_gym import Task

_CHUNK = 1000
"""Draws from one generator; some tasks plan all of their problems when they are made."""
_FRUITLESS_DRAWS_PER_PROBLEM = 20
_MIN_FRUITLESS_DRAWS = 1000


@dataclass(frozen=True)
class Problem:
    """A question and its one right answer."""

    question: str
    answer: str


@runtime_checkable
class _Generator(Protocol):
    """What is used of a task of reasoning-gym."""

    def __getitem__(self, idx: int, /) -> Mapping[str, JsonValue]: ...


def distinct_problems(task: Task, seed: int) -> Iterator[Problem]:
    """Problems of the task in the order drawn, without those whose question was drawn before.

    It ends when the task seems to have no more: a task of N problems that are equally likely and has one left gives it
    within 20 N draws in all but one of 10^8 cases.

    Raises:
        UserError: there is no such task, a parameter is wrong, or its answers are not text.
    """
    seen: set[str] = set()
    fruitless = 0
    for problem in _draws(task, seed):
        if problem.question not in seen:
            seen.add(problem.question)
            fruitless = 0
            yield problem
            continue
        fruitless += 1
        if fruitless >= max(_MIN_FRUITLESS_DRAWS, _FRUITLESS_DRAWS_PER_PROBLEM * len(seen)):
            return


def _draws(task: Task, seed: int) -> Iterator[Problem]:
    """The problem of draw n often depends on the sum of seed and n alone, so seeds are spread out before use."""
    first = int(np.random.SeedSequence(seed).generate_state(1)[0]) // 2
    for start in itertools.count(first, _CHUNK):
        generator = _make_generator(task, start)
        for index in range(_CHUNK):
            yield _as_problem(generator[index], task)


def _make_generator(task: Task, seed: int) -> _Generator:
    # Here, since it imports every task, which takes seconds.
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if task.name not in DATASETS:
        raise UserError(f"reasoning_gym has no task '{task.name}'{_suggestion(task.name, list(DATASETS))}")
    known = [field.name for field in dataclasses.fields(DATASETS[task.name][1])]
    for name in task.params:
        if name not in known:
            hint = _suggestion(name, known) or f"; it has {', '.join(known)}"
            raise UserError(f"reasoning_gym task '{task.name}' has no parameter '{name}'{hint}")
    try:
        return reasoning_gym.create_dataset(task.name, seed=seed, size=_CHUNK, **task.params)
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"reasoning_gym task '{task.name}': {error}") from error


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _as_problem(item: Mapping[str, JsonValue], task: Task) -> Problem:
    question, answer = item["question"], item["answer"]
    if not isinstance(question, str) or not isinstance(answer, str):
        raise UserError(f"reasoning_gym task '{task.name}': the answer {answer!r} is not text")
    return Problem(question, answer)
