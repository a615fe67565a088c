"""Settings that fit each other, and those that do not."""

import json

import pytest
from pydantic import ValidationError

from stages.evaluation.config import EvaluationConfig

SAMPLING = {"temperature": 1.0, "max_response_tokens": 8}


def read(**settings: object) -> EvaluationConfig:
    return EvaluationConfig.model_validate_json(json.dumps(settings))


def test_answers_to_problems_are_what_is_measured_unless_something_else_is_said() -> None:
    assert read(sampling=SAMPLING) == read(sampling=SAMPLING, task={"kind": "verifiable"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "a task of kind verifiable draws answers: say how in `sampling`"),
        ({"task": {"kind": "win_rate", "by": "judge"}}, "a task of kind win_rate draws answers"),
        ({"task": {"kind": "perplexity"}, "sampling": SAMPLING}, "draws no answers: leave `sampling` out"),
        ({"task": {"kind": "verifiable", "pass_at": [2]}, "sampling": SAMPLING}, "pass_at 2 needs as many answers"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        read(**settings)
