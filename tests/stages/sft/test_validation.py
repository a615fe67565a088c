"""Evaluation during supervised fine-tuning: metrics, the best weights, and an early end."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from stage_trial import TINY, StageTrial, StopAfter, coin_rows, external, stored_rows

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.training.config import AdamWConfig, EvaluateConfig
from stages.errors import PreemptedError, UserError
from stages.sft.config import SftConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

NUM_STEPS = 24


def make_trial(folder: Path, evaluate: EvaluateConfig | None, num_steps: int = NUM_STEPS) -> StageTrial:
    """Rows to train on that say 1, and others that say 0: learning the one unlearns the other."""
    config = SftConfig(
        model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
        optimizer=AdamWConfig(learning_rate=2e-2, ema_decay=0.5),
        num_steps=num_steps,
        batch_size=4,
        evaluate=evaluate,
        seed=5,
        save_every_steps=2,
    )
    inputs = {"model": external(TINY), "dataset": stored_rows(folder, coin_rows(12, lambda n: "1"))}
    if evaluate:
        inputs["validation"] = stored_rows(folder, coin_rows(7, lambda n: "0"))
    return StageTrial(folder, "sft", config, inputs)


class Evaluated(NamedTuple):
    trial: StageTrial
    checkpoint: Path
    report: ReportArtifact
    losses: dict[int, float]


def finished(trial: StageTrial) -> Evaluated:
    context = trial.run()
    report = ReportArtifact.model_validate_json((context.output_dir("report") / ARTIFACT_FILE).read_text())
    rows = trial.metrics()
    losses = {row.step: row.numbers["validation/nll"] for row in rows if "validation/nll" in row.numbers}
    return Evaluated(trial, context.output_dir("checkpoint"), report, losses)


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    evaluate = EvaluateConfig(every_steps=2, keep="best", patience=3)
    return finished(make_trial(tmp_path_factory.mktemp("best"), evaluate))


def test_it_is_evaluated_as_often_as_asked_and_ends_when_nothing_becomes_better(best: Evaluated) -> None:
    steps = list(best.losses)
    assert steps == list(range(2, steps[-1] + 1, 2))
    assert steps[-1] < NUM_STEPS
    lowest = min(best.losses, key=lambda step: best.losses[step])
    assert steps[-1] == lowest + 6
    assert best.report.metrics["step"] == steps[-1]
    assert best.report.metrics["best_step"] == lowest
    np.testing.assert_allclose(best.report.metrics["validation_loss"], best.losses[lowest], rtol=1e-6)


def test_the_written_weights_are_those_that_were_best(best: Evaluated, tmp_path: Path) -> None:
    """As a run writes them that ends there, whose mean of the weights they are."""
    lowest = int(best.report.metrics["best_step"])
    until = finished(make_trial(tmp_path, None, num_steps=lowest))
    assert (until.checkpoint / ADAPTER_FILE).read_bytes() == (best.checkpoint / ADAPTER_FILE).read_bytes()


def test_a_run_that_was_stopped_between_evaluations_ends_alike(best: Evaluated) -> None:
    trial = StageTrial(best.trial._folder, "sft", best.trial.config, best.trial.inputs)
    for steps in (3, 4):
        with pytest.raises(PreemptedError):
            trial.run(StopAfter(steps))
    again = finished(trial)
    assert (again.losses, again.report) == (best.losses, best.report)
    assert (again.checkpoint / ADAPTER_FILE).read_bytes() == (best.checkpoint / ADAPTER_FILE).read_bytes()
    assert trial.run().first_step is None


def test_rows_to_evaluate_on_are_given_exactly_where_they_are_read(best: Evaluated, tmp_path: Path) -> None:
    inputs = best.trial.inputs
    without = {name: given for name, given in inputs.items() if name != "validation"}
    with pytest.raises(UserError, match="give this stage the input `validation`"):
        StageTrial(tmp_path, "sft", best.trial.config, without).run()
    unread = best.trial.config.model_copy(update={"evaluate": None})
    with pytest.raises(UserError, match="the input `validation` is given but not used"):
        StageTrial(tmp_path, "sft", unread, inputs).run()
