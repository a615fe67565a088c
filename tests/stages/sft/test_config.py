"""What settings of `sft` must fit each other."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.training.config import OptimizerConfig
from stages.sft.config import SftConfig

SMOKE = Path(__file__).parents[3] / "pipelines" / "smoke.yaml"


def config(batch_size: int, train_micro_batch: int = 8) -> SftConfig:
    return SftConfig(
        model=TrainedModelConfig(lora=LoraConfig(rank=1, alpha=1)),
        optimizer=OptimizerConfig(learning_rate=1.0),
        num_steps=1,
        batch_size=batch_size,
        seed=0,
        train_micro_batch=train_micro_batch,
    )


@pytest.mark.parametrize(("batch_size", "train_micro_batch"), [(16, 8), (8, 8), (6, 1), (2, 8), (1, 8)])
def test_a_micro_batch_divides_the_batch_or_is_larger(batch_size: int, train_micro_batch: int) -> None:
    assert config(batch_size, train_micro_batch).batch_size == batch_size


@pytest.mark.parametrize(("batch_size", "train_micro_batch"), [(12, 8), (9, 2), (16, 15)])
def test_a_micro_batch_that_leaves_a_rest_is_refused(batch_size: int, train_micro_batch: int) -> None:
    message = f"train_micro_batch {train_micro_batch} does not divide batch_size {batch_size}"
    with pytest.raises(ValidationError, match=message):
        config(batch_size, train_micro_batch)


def test_sizes_that_do_not_fit_are_told_where_the_stages_settings_stand() -> None:
    line = SMOKE.read_text().splitlines().index("  sft:") + 4
    with pytest.raises(SpecError) as raised:
        load_pipeline(SMOKE, overrides=[f"stages.sft.with.{name}" for name in ("batch_size=5", "train_micro_batch=2")])
    assert str(raised.value) == f"{SMOKE}:{line}:5: stages.sft.with: train_micro_batch 2 does not divide batch_size 5"
