"""Supervised fine-tuning over a base in few bits, and with dropout, whole."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, StopAfter, coin_rows, external, stored, stored_rows

from stages.contract import ARTIFACT_FILE, ModelArtifact, Quantization, ReportArtifact
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.errors import PreemptedError
from stages.evaluation.config import EvaluationConfig
from stages.sft.config import SftConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

NUM_STEPS = 4


class Tuned(NamedTuple):
    """A run over a base in few bits with dropout."""

    how: Quantization
    trial: StageTrial
    checkpoint: Path


def make_trial(folder: Path, how: Quantization, dropout: float, micro_batch: int = 4) -> StageTrial:
    config = SftConfig(
        model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8), quantization=how),
        optimizer=AdamWConfig(learning_rate=1e-2),
        num_steps=NUM_STEPS,
        batch_size=4,
        adapter_dropout=dropout,
        seed=5,
        train_micro_batch=micro_batch,
        save_every_steps=2,
    )
    dataset = stored_rows(folder, coin_rows(16, lambda n: str(n // 3 % 2)))
    return StageTrial(folder, "sft", config, {"model": external(TINY), "dataset": dataset})


def losses(trial: StageTrial) -> list[float]:
    return [row.numbers["loss/nll"] for row in trial.metrics()]


@pytest.fixture(
    scope="module",
    params=["nf4", pytest.param("int8", marks=pytest.mark.slow), pytest.param("int4", marks=pytest.mark.slow)],
)
def tuned(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Tuned:
    how = Quantization.model_validate({"kind": request.param, "tile_size": 32})
    trial = make_trial(tmp_path_factory.mktemp("tuned"), how, dropout=0.2)
    return Tuned(how, trial, trial.run().output_dir("checkpoint"))


def test_it_learns_and_leaves_an_adapter_alone(tuned: Tuned) -> None:
    first, *_, last = losses(tuned.trial)
    assert last < first - 0.5
    assert sorted(path.name for path in tuned.checkpoint.iterdir()) == [ADAPTER_FILE, ARTIFACT_FILE]
    assert all("_lora_" in name for name in load_file(tuned.checkpoint / ADAPTER_FILE))
    artifact = ModelArtifact.model_validate_json((tuned.checkpoint / ARTIFACT_FILE).read_text())
    assert artifact.adapter is not None
    assert artifact.adapter.quantization == tuned.how


def test_a_run_that_was_stopped_drops_the_same_inputs_again(tuned: Tuned, tmp_path: Path) -> None:
    trial = make_trial(tmp_path, tuned.how, dropout=0.2)
    with pytest.raises(PreemptedError, match="stopped after step 2 of 4"):
        trial.run(StopAfter(2))
    again = trial.run()
    assert again.first_step == 3
    assert losses(trial) == losses(tuned.trial)
    for path in tuned.checkpoint.iterdir():
        assert (again.output_dir("checkpoint") / path.name).read_bytes() == path.read_bytes(), path.name


def test_smaller_micro_batches_drop_the_same_inputs(tuned: Tuned, tmp_path: Path) -> None:
    trial = make_trial(tmp_path, tuned.how, dropout=0.2, micro_batch=2)
    trial.run()
    np.testing.assert_allclose(losses(trial), losses(tuned.trial), rtol=1e-4)


def test_without_dropout_a_run_learns_something_else(tuned: Tuned, tmp_path: Path) -> None:
    trial = make_trial(tmp_path, tuned.how, dropout=0.0)
    with pytest.raises(PreemptedError):
        trial.run(StopAfter(2))
    (first, second), (same, other, *_) = losses(trial), losses(tuned.trial)
    # The first step's adapter says nothing yet, whatever it sees.
    np.testing.assert_allclose(first, same, rtol=1e-6)
    assert abs(second - other) > 1e-3


def test_it_is_evaluated_over_the_base_that_it_was_trained_over(tuned: Tuned, tmp_path: Path) -> None:
    config = EvaluationConfig(sampling=SamplingConfig(temperature=1.0, max_response_tokens=4), seed=2)
    inputs = {"model": stored(tmp_path, tuned.checkpoint), "dataset": stored_rows(tmp_path, coin_rows(4, str))}
    folder = StageTrial(tmp_path, "evaluation", config, inputs).run().output_dir("report")
    assert ReportArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text()).num_samples == 4
