"""Evaluation of a trained policy and of a bare base, whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stage_trial import TINY, StageTrial, StopAfter, Trained, coin_rows, external, stored_rows

from stages.contract import ARTIFACT_FILE, ReportArtifact, StageInput
from stages.engine.models.lora import Weights
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.sampler import NativeSampler, Responses
from stages.engine.rollout.sampling import row_uniforms
from stages.errors import PreemptedError, UserError
from stages.evaluation.config import EvaluationConfig, VerifiableTask
from stages.evaluation.report import SAMPLES_FILE
from stages.statistics import mean_interval

NUM_ROWS = 7
ONE_ANSWER = VerifiableTask()


def make_trial(
    folder: Path,
    model: StageInput,
    micro_batch: int,
    temperature: float = 1.0,
    max_response_tokens: int = 4,
    task: VerifiableTask = ONE_ANSWER,
) -> StageTrial:
    config = EvaluationConfig(
        task=task,
        sampling=SamplingConfig(temperature=temperature, max_response_tokens=max_response_tokens),
        seed=2,
        rollout_micro_batch=micro_batch,
    )
    dataset = stored_rows(folder, coin_rows(NUM_ROWS, lambda n: str(n % 2)))
    return StageTrial(folder, "evaluation", config, {"model": model, "dataset": dataset})


def evaluate(trial: StageTrial) -> tuple[ReportArtifact, list[dict[str, str | float]]]:
    folder = trial.run().output_dir("report")
    report = ReportArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text())
    return report, [json.loads(line) for line in (folder / SAMPLES_FILE).read_text().splitlines()]


@pytest.fixture(scope="module")
def evaluated(trained: Trained) -> tuple[ReportArtifact, list[dict[str, str | float]]]:
    """In batches of 3, the last of which holds one row."""
    return evaluate(make_trial(trained.folder, trained.model, micro_batch=3))


def mean(samples: list[dict[str, str | float]], name: str) -> float:
    return sum(float(sample[name]) for sample in samples) / len(samples)


def test_every_row_is_answered_and_scored_also_when_the_last_batch_is_not_full(
    evaluated: tuple[ReportArtifact, list[dict[str, str | float]]],
) -> None:
    report, samples = evaluated
    assert [sample["id"] for sample in samples] == [f"row-{n:03d}" for n in range(NUM_ROWS)]
    assert (report.samples_file, report.num_samples) == (SAMPLES_FILE, NUM_ROWS)
    for sample in samples:
        digits = [character for character in str(sample["response"]) if character.isdigit()]
        assert sample["accuracy"] == float(digits[-1:] == [sample["answer"]])
        assert sample["strict_accuracy"] == float(str(sample["response"]).strip() == sample["answer"])


def test_metrics_are_means_over_all_rows(evaluated: tuple[ReportArtifact, list[dict[str, str | float]]]) -> None:
    report, samples = evaluated
    names = {"accuracy": "accuracy", "strict_accuracy": "strict_accuracy", "truncated_rate": "truncated"}
    for metric, name in {**names, "mean_response_tokens": "response_tokens"}.items():
        assert report.metrics[metric] == pytest.approx(mean(samples, name))
    assert 0 < report.metrics["accuracy"] < 1


def test_answers_do_not_depend_on_the_size_of_a_batch(
    trained: Trained, evaluated: tuple[ReportArtifact, list[dict[str, str | float]]]
) -> None:
    assert evaluate(make_trial(trained.folder, trained.model, micro_batch=32)) == evaluated


def test_a_bare_base_is_evaluated_at_temperature_zero_and_cut_off_at_its_limit(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, external(TINY), micro_batch=4, temperature=0.0, max_response_tokens=1)
    report, samples = evaluate(trial)
    assert report.metrics["truncated_rate"] == report.metrics["mean_response_tokens"] == 1.0
    by_prompt = {(sample["prompt"], sample["response"]) for sample in samples}
    assert len(by_prompt) == 3
    (row,) = trial.metrics()
    assert row.numbers == {f"evaluation/{name}": value for name, value in report.metrics.items()}


def test_responses_that_leave_the_models_context_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"take \d+ tokens, more than the 512 of the model's context"):
        make_trial(tmp_path, external(TINY), micro_batch=4, max_response_tokens=500).run()


def test_a_stopped_evaluation_goes_on_with_the_answers_that_it_has(
    trained: Trained, evaluated: tuple[ReportArtifact, list[dict[str, str | float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(trained.folder, trained.model, micro_batch=3)
    with pytest.raises(PreemptedError, match="stopped after 3 of 7 answers; they are saved"):
        trial.run(StopAfter(2))
    asked: list[int] = []
    draw = NativeSampler.sample

    def sample(
        sampler: NativeSampler, adapter: Weights, prompts: Any, prompt_ids: Sequence[int], step: int
    ) -> Responses:
        asked.extend(prompt_ids)
        return draw(sampler, adapter, prompts, prompt_ids, step)

    monkeypatch.setattr(NativeSampler, "sample", sample)
    assert evaluate(trial) == evaluated
    assert asked == [3, 4, 5, 6]


def test_accuracy_has_an_interval(evaluated: tuple[ReportArtifact, list[dict[str, str | float]]]) -> None:
    report, samples = evaluated
    interval = mean_interval([float(sample["accuracy"]) for sample in samples])
    assert report.intervals["accuracy"] == (interval.low, interval.high)
    assert interval.low < report.metrics["accuracy"] < interval.high


def test_several_answers_give_pass_at_k(
    trained: Trained, evaluated: tuple[ReportArtifact, list[dict[str, str | float]]]
) -> None:
    trial = make_trial(trained.folder, trained.model, micro_batch=7, task=VerifiableTask(num_samples=4, pass_at=(1, 3)))
    report, samples = evaluate(trial)
    assert report.metrics["pass_at_1"] == pytest.approx(report.metrics["accuracy"])
    assert report.metrics["pass_at_1"] < report.metrics["pass_at_3"]
    assert report.intervals["pass_at_3"][0] <= report.metrics["pass_at_3"] <= report.intervals["pass_at_3"][1]
    # The first of several answers is the only one of a single draw.
    assert [sample["response"] for sample in samples] == [sample["response"] for sample in evaluated[1]]


def test_base_and_candidate_are_asked_the_same_with_the_same_random_numbers(
    trained: Trained, evaluated: tuple[ReportArtifact, list[dict[str, str | float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[object, object]] = []
    start = NativeSampler._start

    def keep(sampler: NativeSampler, adapter: Weights, prompts: Any, prompt_ids: Any, step: int) -> Any:
        numbers = row_uniforms(sampler._seed, step, prompt_ids, sampler._group_size, 4)
        given.append((list(map(list, prompts)), numbers.tolist()))
        return start(sampler, adapter, prompts, prompt_ids, step)

    monkeypatch.setattr(NativeSampler, "_start", keep)
    _, of_candidate = evaluate(make_trial(trained.folder, trained.model, micro_batch=3))
    asked = list(given)
    given.clear()
    _, of_base = evaluate(make_trial(trained.folder, external(TINY), micro_batch=3))
    assert given == asked
    assert [(one["id"], one["prompt"]) for one in of_base] == [(one["id"], one["prompt"]) for one in of_candidate]
