"""What settings of `grpo` must fit each other."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.grpo.config import GrpoConfig

SMOKE = Path(__file__).parents[3] / "pipelines" / "smoke.yaml"


def config(
    prompts_per_step: int = 4, mini_batch: int = 4, rollout_micro_batch: int = 8, temperature: float = 1.0
) -> GrpoConfig:
    return GrpoConfig(
        model=TrainedModelConfig(lora=LoraConfig(rank=1, alpha=1)),
        optimizer=AdamWConfig(learning_rate=1.0),
        num_steps=1,
        prompts_per_step=prompts_per_step,
        mini_batch=mini_batch,
        group_size=2,
        sampling=SamplingConfig(temperature=temperature, max_response_tokens=1),
        reward="exact",
        kl_coef=0.0,
        seed=0,
        rollout_micro_batch=rollout_micro_batch,
    )


@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 2, 4), (6, 3, 2), (2, 1, 8)])
def test_parts_divide_a_step_and_a_sampled_part_may_be_larger(sizes: tuple[int, int, int]) -> None:
    assert config(*sizes).prompts_per_step == sizes[0]


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ((8, 3, 8), ["mini_batch 3 does not divide prompts_per_step 8"]),
        ((4, 8, 4), ["mini_batch 8 does not divide prompts_per_step 4"]),
        ((8, 8, 5), ["rollout_micro_batch 5 does not divide prompts_per_step 8"]),
        (
            (9, 2, 4),
            [f"{name} does not divide prompts_per_step 9" for name in ("mini_batch 2", "rollout_micro_batch 4")],
        ),
    ],
)
def test_sizes_that_leave_a_rest_are_refused_together(sizes: tuple[int, int, int], messages: list[str]) -> None:
    with pytest.raises(ValidationError) as raised:
        config(*sizes)
    assert [error["msg"] for error in raised.value.errors()] == ["Value error, " + "; ".join(messages)]


def test_a_temperature_of_zero_is_refused_for_training_where_it_stands() -> None:
    with pytest.raises(ValidationError, match="temperature 0 draws the same response every time") as raised:
        config(temperature=0.0)
    assert [error["loc"] for error in raised.value.errors()] == [("sampling",)]


def test_faults_are_told_at_their_lines() -> None:
    lines = SMOKE.read_text().splitlines()
    start = lines.index("  grpo:")
    sampling = next(n for n, line in enumerate(lines[start:], start + 1) if "sampling" in line)
    for override, place in (
        ("mini_batch=5", f"{start + 4}:5: stages.grpo.with: mini_batch 5 does not divide prompts_per_step 8"),
        ("sampling.temperature=0", f"{sampling}:7: stages.grpo.with.sampling: temperature 0 draws the same"),
    ):
        with pytest.raises(SpecError) as raised:
            load_pipeline(
                SMOKE, overrides=[f"stages.grpo.with.{setting}" for setting in ("prompts_per_step=8", override)]
            )
        assert str(raised.value).startswith(f"{SMOKE}:{place}")
