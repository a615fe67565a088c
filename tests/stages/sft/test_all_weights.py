"""Supervised fine-tuning of all weights, whole."""

from pathlib import Path
from typing import NamedTuple

import pytest
from jax import monitoring
from stage_trial import TINY, StageTrial, StopAfter, coin_rows, external, stored, stored_rows

from stages.contract import ARTIFACT_FILE, ModelArtifact
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.training.config import MuonConfig
from stages.errors import PreemptedError, UserError
from stages.sft.config import SftConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

NUM_STEPS = 8
WEIGHTS_FILE = "model.safetensors"


class CountingStop(StopAfter):
    """Notes at each step how many programs have been compiled."""

    def __init__(self) -> None:
        super().__init__(10**6)
        self.compiled = 0
        self.at_steps: list[int] = []

    def count(self, event: str, duration_secs: float, **_: str | int) -> None:
        self.compiled += event == "/jax/core/compile/backend_compile_duration"

    def is_set(self) -> bool:
        self.at_steps.append(self.compiled)
        return super().is_set()


class Whole(NamedTuple):
    trial: StageTrial
    checkpoint: Path
    compiled: list[int]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    config = SftConfig(
        model=TrainedModelConfig(lora=None),
        optimizer=MuonConfig(kind="muon", learning_rate=1e-2, weight_decay=0.1),
        num_steps=NUM_STEPS,
        batch_size=6,
        seed=5,
        train_micro_batch=2,
        save_every_steps=3,
    )
    # Of different lengths, so that updates differ in rows and in micro-batches.
    dataset = stored_rows(folder, coin_rows(24, lambda n: "1" * (1 + n * n % 23)))
    trial = StageTrial(folder, "sft", config, {"model": external(TINY), "dataset": dataset})
    stop = CountingStop()
    monitoring.register_event_duration_secs_listener(stop.count)
    context = trial.run(stop)
    return Whole(trial, context.output_dir("checkpoint"), stop.at_steps)


def test_the_output_is_a_whole_model_that_has_learnt(whole: Whole) -> None:
    artifact = ModelArtifact.model_validate_json((whole.checkpoint / ARTIFACT_FILE).read_text())
    assert artifact.whole
    assert artifact.adapter is None
    losses = [row.numbers["loss/nll"] for row in whole.trial.metrics()]
    assert losses[-1] < losses[0] / 2


def test_nothing_is_compiled_after_the_first_two_steps(whole: Whole) -> None:
    assert len(whole.compiled) == NUM_STEPS
    assert whole.compiled[0] > 0
    assert len(set(whole.compiled[1:])) == 1


def test_a_run_that_was_stopped_ends_in_the_same_bytes(whole: Whole) -> None:
    trial = StageTrial(whole.trial._folder, "sft", whole.trial.config, whole.trial.inputs)
    with pytest.raises(PreemptedError):
        trial.run(StopAfter(4))
    again = trial.run().output_dir("checkpoint")
    assert {path.name for path in again.iterdir()} == {path.name for path in whole.checkpoint.iterdir()}
    for path in whole.checkpoint.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_later_stage_trains_on_from_it_all_weights_or_an_adapter(whole: Whole, tmp_path: Path) -> None:
    folder = whole.trial._folder
    model = stored(folder, whole.checkpoint)
    lora = TrainedModelConfig(lora=LoraConfig(rank=2, alpha=4))
    config = whole.trial.config
    assert isinstance(config, SftConfig)
    for how in (config.model, lora):
        settings = config.model_copy(update={"num_steps": 1, "model": how})
        trial = StageTrial(folder, "sft", settings, whole.trial.inputs | {"model": model})
        output = trial.run().output_dir("checkpoint")
        last, first = whole.trial.metrics()[-1], trial.metrics()[0]
        assert first.numbers["loss/nll"] < 2 * last.numbers["loss/nll"]
        assert (output / WEIGHTS_FILE).exists() == (how.lora is None)


def test_an_adapter_is_not_left_behind_when_all_weights_are_to_be_trained(whole: Whole, tmp_path: Path) -> None:
    config = whole.trial.config.model_copy(
        update={"num_steps": 1, "model": TrainedModelConfig(lora=LoraConfig(rank=2, alpha=4))}
    )
    folder = whole.trial._folder
    adapted = stored(folder, StageTrial(folder, "sft", config, whole.trial.inputs).run().output_dir("checkpoint"))
    with pytest.raises(UserError, match=r"asks for no adapter: `lora: null` trains all weights.*`export` merges one"):
        StageTrial(folder, "sft", whole.trial.config, whole.trial.inputs | {"model": adapted}).run()
