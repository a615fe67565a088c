"""Perplexity, preferences and win rates of small models, whole."""

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from stage_trial import TINY, StageTrial, Trained, coin_rows, external, stored, stored_rows

from stages.contract import ARTIFACT_FILE, ReportArtifact, StageInput
from stages.engine.data.records import ChatRow, Message, PreferenceRow, Record, TextRow
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.errors import UserError
from stages.evaluation import win_rate
from stages.evaluation.config import (
    EvaluationConfig,
    EvaluationTask,
    PerplexityTask,
    PreferenceTask,
    WinRateTask,
)
from stages.evaluation.report import SAMPLES_FILE
from stages.reward_model.config import RewardModelConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

Samples = list[dict[str, float]]
ASK = (Message(role="user", content="coin 1?"),)


def say(text: str) -> tuple[Message, ...]:
    return (Message(role="assistant", content=text),)


def evaluate(
    trained: Trained,
    task: EvaluationTask,
    rows: Sequence[Record],
    *,
    model: StageInput | None = None,
    inputs: Mapping[str, StageInput] | None = None,
    sampling: SamplingConfig | None = None,
) -> tuple[ReportArtifact, Samples]:
    config = EvaluationConfig(task=task, sampling=sampling, rollout_micro_batch=4, seed=2)
    dataset = stored_rows(trained.folder, rows)
    given = {"model": model or trained.model, "dataset": dataset, **(inputs or {})}
    folder = StageTrial(trained.folder, "evaluation", config, given).run().output_dir("report")
    report = ReportArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text())
    return report, [json.loads(line) for line in (folder / SAMPLES_FILE).read_text().splitlines()]


def test_perplexity_is_weighted_by_tokens_and_bits_by_bytes(trained: Trained) -> None:
    rows = [ChatRow(id=f"r{n}", messages=(*ASK, *say(str(n % 2) * (1 + n % 3)))) for n in range(5)]
    report, samples = evaluate(trained, PerplexityTask(kind="perplexity"), rows)
    nats, tokens = (sum(sample[name] for sample in samples) for name in ("nats", "tokens"))
    assert report.metrics["perplexity"] == pytest.approx(math.exp(nats / tokens))
    assert report.metrics["bits_per_byte"] == pytest.approx(nats / math.log(2) / (1 + 2 + 3 + 1 + 2))
    assert report.metrics["mean_row_nats"] == pytest.approx(np.mean([s["nats"] / s["tokens"] for s in samples]))
    low, high = report.intervals["mean_row_nats"]
    assert low < report.metrics["mean_row_nats"] < high


def test_a_model_expects_what_it_was_trained_on(trained: Trained) -> None:
    rows = coin_rows(4, lambda n: str(n % 2))
    found = [
        evaluate(trained, PerplexityTask(kind="perplexity"), rows, model=model)[0].metrics["perplexity"]
        for model in (trained.model, external(TINY))
    ]
    assert found[0] < 3 < 20 < found[1]


def test_texts_are_read_without_a_chat_template(trained: Trained) -> None:
    rows = [TextRow(id="a", text="coin"), TextRow(id="b", text="a longer text")]
    report, samples = evaluate(trained, PerplexityTask(kind="perplexity"), rows, model=external(TINY))
    assert [sample["id"] for sample in samples] == ["a", "b"]
    assert report.metrics["perplexity"] > 1


PAIRS = [PreferenceRow(id=f"p{n}", messages=ASK, chosen=say("1"), rejected=say("none of them")) for n in range(2)]
PAIRS.append(PreferenceRow(id="p2", messages=ASK, chosen=say("heads"), rejected=say("0")))


def test_a_model_prefers_what_it_was_trained_to_say(trained: Trained) -> None:
    report, samples = evaluate(trained, PreferenceTask(kind="preference", by="logprobs"), PAIRS)
    assert [sample["accuracy"] for sample in samples] == [1.0, 1.0, 0.0]
    assert report.metrics["accuracy"] == pytest.approx(2 / 3)
    assert all(s["margin"] == s["chosen_score"] - s["rejected_score"] for s in samples)


def test_the_reference_is_taken_off_and_a_model_against_itself_prefers_nothing(trained: Trained) -> None:
    task = PreferenceTask(kind="preference", by="logprobs")
    report, samples = evaluate(trained, task, PAIRS, inputs={"reference": trained.model})
    assert {sample["margin"] for sample in samples} == {0.0}
    assert report.metrics["accuracy"] == 0.5


SAMPLING = SamplingConfig(temperature=1.0, max_response_tokens=4)


def test_a_judge_without_a_verdict_makes_draws_and_is_counted(trained: Trained) -> None:
    task = WinRateTask(kind="win_rate", by="judge", judge_tokens=8)
    inputs = {"judge": external(TINY)}
    report, samples = evaluate(trained, task, coin_rows(2, lambda _: "1"), inputs=inputs, sampling=SAMPLING)
    assert (report.metrics["win_rate"], report.metrics["tie_rate"], report.metrics["unparsed_rate"]) == (0.5, 1.0, 1.0)
    assert all(len(sample["judgements"]) == 2 for sample in samples)  # type: ignore[arg-type]


def test_a_model_against_itself_draws_the_same_replies(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    # A judge that likes the first reply better.
    monkeypatch.setattr(win_rate, "verdict", lambda _: 1.0)
    task = WinRateTask(kind="win_rate", by="judge", judge_tokens=8)
    inputs = {"judge": external(TINY), "reference": trained.model}
    report, samples = evaluate(trained, task, coin_rows(3, lambda _: "1"), inputs=inputs, sampling=SAMPLING)
    assert all(sample["response"] == sample["other"] for sample in samples)
    assert (report.metrics["win_rate"], report.metrics["unparsed_rate"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("task", "inputs", "message"),
    [
        (WinRateTask(kind="win_rate", by="judge"), (), "needs the input `judge`"),
        (WinRateTask(kind="win_rate", by="rewards"), ("judge", "reward_model"), "does not read the input `judge`"),
        (PerplexityTask(kind="perplexity"), ("reference",), "does not read the input `reference`"),
    ],
)
def test_a_model_that_is_missing_or_not_read_is_named(
    trained: Trained, task: EvaluationTask, inputs: Sequence[str], message: str
) -> None:
    sampling = SAMPLING if isinstance(task, WinRateTask) else None
    with pytest.raises(UserError, match=message):
        evaluate(trained, task, coin_rows(1, str), inputs=dict.fromkeys(inputs, external(TINY)), sampling=sampling)


@pytest.fixture(scope="module")
def reward_model(trained: Trained) -> StageInput:
    """It learnt that replies which end in `1` are the better ones."""
    pairs = [
        PreferenceRow(id=f"r{n}", messages=ASK, chosen=say(f"{n % 9} 1"), rejected=say(f"{n % 9} 0")) for n in range(16)
    ]
    config = RewardModelConfig(
        model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
        optimizer=AdamWConfig(learning_rate=1e-2),
        num_steps=12,
        batch_size=8,
        seed=1,
        train_micro_batch=4,
    )
    inputs = {"model": external(TINY), "dataset": stored_rows(trained.folder, pairs)}
    trial = StageTrial(trained.folder, "reward_model", config, inputs)
    return stored(trained.folder, trial.run().output_dir("checkpoint"))


def test_a_reward_model_prefers_what_it_learnt_to_prefer(trained: Trained, reward_model: StageInput) -> None:
    task = PreferenceTask(kind="preference", by="rewards")
    pairs = [PreferenceRow(id="x", messages=ASK, chosen=say("3 1"), rejected=say("3 0"))]
    report, samples = evaluate(trained, task, pairs, model=reward_model)
    assert report.metrics["accuracy"] == 1.0
    assert samples[0]["margin"] > 0


def test_a_reward_model_decides_who_wins(trained: Trained, reward_model: StageInput) -> None:
    task = WinRateTask(kind="win_rate", by="rewards")
    rows = coin_rows(4, lambda _: "3 0")
    report, samples = evaluate(trained, task, rows, inputs={"reward_model": reward_model}, sampling=SAMPLING)
    assert [s["win_rate"] for s in samples] == [float(s["reward"] > s["other_reward"]) for s in samples]
    assert report.metrics["win_rate"] == pytest.approx(np.mean([s["win_rate"] for s in samples]))
    assert {s["other"] for s in samples} == {"3 0"}
