"""Supervised fine-tuning of a tiny mixture of experts whose base is in few bits (QLoRA), and what is made of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, coin_rows, external, stored, stored_rows

from stages.contract import Quantization
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.architecture import Experts
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.families.catalog import FAMILIES
from stages.engine.models.opened import open_model
from stages.engine.models.quantise import QVALUE, SCALE, quantise
from stages.engine.models.source import load_trained_model
from stages.engine.models.weights.abstract import weight_shapes
from stages.engine.models.weights.load import open_checkpoint
from stages.engine.models.weights.save import save_hf
from stages.engine.training.config import AdamWConfig
from stages.export.config import ExportConfig
from stages.sft.config import SftConfig

HOW = Quantization(kind="nf4", tile_size=16)
CONFIG = SftConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16), quantization=HOW),
    optimizer=AdamWConfig(learning_rate=1e-2, warmup_steps=3),
    num_steps=20,
    batch_size=8,
    seed=5,
    train_micro_batch=4,
    save_every_steps=10,
    adapter_dropout=0.05,
)
ARCH = replace(
    open_checkpoint(TINY).arch, qk_norm=True, experts=Experts(count=4, per_token=2, hidden=32, normalized=True)
)
UP = "blocks.mlp.up_proj.kernel"


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    random = np.random.Generator(np.random.Philox(3))
    return {
        path: np.ones(shape, np.float32)
        if path.endswith("scale")
        else (random.normal(size=shape) * 0.1).astype(np.float32)
        for path, shape in weight_shapes(ARCH).items()
    }


@pytest.fixture(scope="module")
def mixture(weights: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    save_hf(folder, FAMILIES["qwen3_moe"], ARCH, weights.items(), load_tokenizer(TINY))
    return folder


def test_experts_are_read_into_few_bits_and_all_of_them_get_adapters_by_default(
    mixture: Path, weights: dict[str, np.ndarray], tmp_path: Path
) -> None:
    context = StageTrial(tmp_path, "sft", CONFIG, {"model": external(mixture)}).context()
    model = load_trained_model(open_model(context), CONFIG.model, seed=1)
    base = {".".join(map(str, path)): leaf.get_value() for path, leaf in model.frozen.base.flat_state()}
    for part, value in quantise(weights[UP], HOW).items():
        np.testing.assert_array_equal(base[f"{UP}.{part}"], value)
    assert {f"{UP}.{part}" for part in (QVALUE, SCALE)} <= base.keys()
    np.testing.assert_array_equal(base["blocks.mlp.router.kernel"], weights["blocks.mlp.router.kernel"])
    assert model.adapter[f"{UP}_lora_a"].shape == (ARCH.num_layers, 4, ARCH.width, 8)


@pytest.mark.slow
def test_its_loss_falls_and_the_exported_model_has_every_expert_changed(
    mixture: Path, weights: dict[str, np.ndarray], tmp_path: Path
) -> None:
    dataset = stored_rows(tmp_path, coin_rows(48, lambda n: str(n // 3 % 2)))
    trial = StageTrial(tmp_path, "sft", CONFIG, {"model": external(mixture), "dataset": dataset})
    trained = stored(tmp_path, trial.run().output_dir("checkpoint"))
    losses = [row.numbers["loss/nll"] for row in trial.metrics()]
    assert losses[0] > 4.0
    assert np.mean(losses[-5:]) < 2.0
    export = StageTrial(tmp_path, "export", ExportConfig(dtype="float32"), {"model": trained})
    written = load_file(export.run().output_dir("model") / "model.safetensors")
    for layer in range(ARCH.num_layers):
        for expert in range(4):
            found = written[f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"]
            assert np.abs(found - weights[UP][layer, expert].T).max() > 0.01
