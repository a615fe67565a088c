"""Evaluation of a model, by the task that the settings name."""

from stages.contract import StageContext
from stages.errors import UserError
from stages.evaluation.config import (
    EvaluationConfig,
    EvaluationTask,
    PerplexityTask,
    PreferenceTask,
    VerifiableTask,
    WinRateTask,
)
from stages.evaluation.perplexity import measure_perplexity
from stages.evaluation.preference import compare_pairs
from stages.evaluation.verifiable import answer_and_score
from stages.evaluation.win_rate import compete


def run(context: StageContext, config: EvaluationConfig) -> None:
    """Measures what the task asks for on every row of the dataset."""
    _check_inputs(context, config.task)
    match config.task, config.sampling:
        case VerifiableTask() as task, sampling if sampling is not None:
            answer_and_score(context, config, task, sampling)
        case WinRateTask() as task, sampling if sampling is not None:
            compete(context, config, task, sampling)
        case PreferenceTask() as task, _:
            compare_pairs(context, config, task)
        case PerplexityTask(), _:
            measure_perplexity(context, config)
        case _:
            raise AssertionError("settings that draw answers say how")


def _check_inputs(context: StageContext, task: EvaluationTask) -> None:
    """Checks that the models are given that the task asks, and no others.

    Raises:
        UserError: an input is missing, or nothing reads it.
    """
    wanted, allowed = _models(task)
    given = {name for name in ("reference", "judge", "reward_model") if context.has_input(name)}
    missing, unread = wanted - given, given - wanted - allowed
    if missing:
        raise UserError(f"a task of kind {task.kind} as it is set needs the input `{min(missing)}`")
    if unread:
        raise UserError(f"a task of kind {task.kind} as it is set does not read the input `{min(unread)}`; take it out")


def _models(task: EvaluationTask) -> tuple[set[str], set[str]]:
    """Inputs beside `model` that a task needs, and those that it can do without."""
    match task:
        case WinRateTask(by=by):
            return {"judge" if by == "judge" else "reward_model"}, {"reference"}
        case PreferenceTask(by="logprobs"):
            return set(), {"reference"}
        case _:
            return set(), set()
