"""The shipped pipeline of a reward model: trained, measured, exported, and reused."""

from collections.abc import Callable

import pytest
from safetensors.numpy import load_file
from shipped_pipeline import Shipped


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_reward_model_is_trained_measured_and_exported(shipped: Callable[[str], Shipped]) -> None:
    pipeline = shipped("reward_model.yaml")
    assert pipeline.run() == 0
    (metrics,) = pipeline.metrics("reward_model")
    assert metrics["accuracy"] >= 0.9
    assert metrics["calibration_error"] < 0.2
    (model,) = pipeline.outputs("export", "model")
    assert load_file(model / "model.safetensors")["score.weight"].shape == (1, 64)
    assert pipeline.plan() == 0
