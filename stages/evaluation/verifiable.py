"""Accuracy on problems with a known answer."""

from collections.abc import Sequence
from statistics import fmean

from stages.contract import StageContext
from stages.engine.data.records import Row, read_dataset
from stages.engine.models.opened import open_model
from stages.engine.models.source import check_length, load_model
from stages.engine.rewards.catalog import REWARDS
from stages.engine.rewards.scoring import score
from stages.engine.rollout.config import SamplingConfig
from stages.evaluation.answers import Answer, AnswerBook
from stages.evaluation.config import EvaluationConfig, VerifiableTask
from stages.evaluation.pass_at_k import pass_at_k
from stages.evaluation.report import Sample, write_report

MEANS = {
    "accuracy": "accuracy",
    "strict_accuracy": "strict_accuracy",
    "truncated_rate": "truncated",
    "mean_response_tokens": "response_tokens",
}
"""Metrics, and of which field of the samples each is the mean."""


def answer_and_score(
    context: StageContext, config: EvaluationConfig, task: VerifiableTask, sampling: SamplingConfig
) -> None:
    """Answers every row of the dataset and scores the answers."""
    opened = open_model(context)
    rows = read_dataset(context.input_dir("dataset"))
    prompts = [opened.chat.prompt_ids(row.messages, row.tools) for row in rows]
    check_length(opened, max(map(len, prompts)) + sampling.max_response_tokens)
    book = AnswerBook(context, len(rows))
    answers = book.draw(
        "model",
        load_model(opened),
        prompts,
        sampling,
        num_samples=task.num_samples,
        micro_batch=config.rollout_micro_batch,
        seed=config.seed,
    )
    texts = [[opened.chat.reply_text(answer.tokens) for answer in of_row] for of_row in answers]
    samples = [_sample(*given, config, task) for given in zip(rows, answers, texts, strict=True)]
    means = MEANS | {f"pass_at_{k}": f"pass_at_{k}" for k in task.pass_at}
    write_report(context, samples, means, {})


def _sample(
    row: Row, answers: Sequence[Answer], texts: Sequence[str], config: EvaluationConfig, task: VerifiableTask
) -> Sample:
    right = [score(REWARDS[config.accuracy], text, row.answer, row.id) for text in texts]
    num_right = sum(value == 1.0 for value in right)
    several = {"responses": list(texts), "accuracies": list(right)} if len(texts) > 1 else {}
    return {
        "id": row.id,
        "prompt": row.messages[-1].content,
        "response": texts[0],
        "answer": row.answer,
        "accuracy": fmean(right),
        "strict_accuracy": fmean(REWARDS["exact"](text, row.answer) for text in texts),
        "truncated": fmean(float(not answer.ended) for answer in answers),
        "response_tokens": fmean(len(answer.tokens) for answer in answers),
        **{f"pass_at_{k}": pass_at_k(len(right), num_right, k) for k in task.pass_at},
        **several,
    }
