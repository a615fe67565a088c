"""The shipped pipeline of supervised fine-tuning and DPO: trained, measured on other pairs, and reused."""

from collections.abc import Callable

import pytest
from shipped_pipeline import Shipped


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_learns_conversations_and_then_preferences(shipped: Callable[[str], Shipped]) -> None:
    pipeline = shipped("sft_dpo.yaml")
    assert pipeline.run() == 0
    (metrics,) = pipeline.metrics("evaluation")
    assert metrics["accuracy"] >= 0.8
    assert metrics["mean_margin"] > 0.0
    assert pipeline.plan() == 0
