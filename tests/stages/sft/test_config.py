"""What settings of supervised training must fit each other, and what is said of those that do not."""

from pathlib import Path

import pytest

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline

SMOKE = Path(__file__).parents[3] / "pipelines" / "smoke.yaml"
OPTIMIZER = "stages.sft.with.optimizer"


def fault(*overrides: str) -> str:
    with pytest.raises(SpecError) as raised:
        load_pipeline(SMOKE, overrides=overrides)
    return str(raised.value)


def test_what_is_for_adapters_is_refused_where_all_weights_are_trained() -> None:
    said = fault("stages.sft.with.model={lora: null}", "stages.sft.with.adapter_dropout=0.1")
    assert "stages.sft.with: adapter_dropout is for adapters, but model.lora is null" in said
    said = fault("stages.sft.with.model={lora: null, quantization: {kind: nf4}}")
    assert "stages.sft.with.model: quantization is for a base under an adapter, but lora is null" in said


def test_each_optimizer_has_its_own_settings() -> None:
    said = fault(f"{OPTIMIZER}={{kind: sgd, learning_rate: 0.1, beta2: 0.9}}")
    assert f"{OPTIMIZER}.beta2: unknown key" in said
    said = fault(f"{OPTIMIZER}={{kind: lion, learning_rate: -1}}")
    assert f"{OPTIMIZER}.learning_rate: should be greater than 0, not -1" in said


def test_an_unknown_optimizer_is_told_with_those_that_there_are() -> None:
    said = fault(f"{OPTIMIZER}={{kind: adam, learning_rate: 0.1}}")
    assert f"{OPTIMIZER}" in said
    assert all(kind in said for kind in ("adam", "adamw", "adafactor", "lion", "muon", "sgd"))
