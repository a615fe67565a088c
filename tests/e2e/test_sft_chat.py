"""The shipped pipeline of conversations: learnt, measured on others, exported, and reused."""

from collections.abc import Callable

import pytest
from safetensors.numpy import load_file
from shipped_pipeline import Shipped


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_conversations_are_learnt_and_the_model_is_exported(shipped: Callable[[str], Shipped]) -> None:
    pipeline = shipped("sft_chat.yaml")
    assert pipeline.run() == 0
    (metrics,) = pipeline.metrics("sft")
    assert metrics["rows"] == 40 * 32
    # Two or three replies of one or two digits and an end token each: nothing else is learnt.
    assert 2 * 2 * metrics["rows"] <= metrics["tokens"] <= 3 * 3 * metrics["rows"]
    (model,) = pipeline.outputs("export", "model")
    assert load_file(model / "model.safetensors")
    assert pipeline.plan() == 0
