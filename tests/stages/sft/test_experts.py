"""Supervised fine-tuning of a tiny mixture of experts whose base is in few bits (QLoRA), and what is made of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, coin_rows, external, stored, stored_rows

from stages.contract import Quantization
from stages.engine.cluster.config import MeshConfig
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


def new_trial(folder: Path, config: SftConfig, mixture: Path) -> StageTrial:
    rows = stored_rows(folder, coin_rows(48, lambda n: str(n // 3 % 2)))
    return StageTrial(folder, "sft", config, {"model": external(mixture), "dataset": rows})


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
    assert model.trained[f"{UP}_lora_a"].shape == (ARCH.num_layers, 4, ARCH.width, 8)


@pytest.mark.slow
def test_its_loss_falls_and_the_exported_model_has_every_expert_changed(
    mixture: Path, weights: dict[str, np.ndarray], tmp_path: Path
) -> None:
    trial = new_trial(tmp_path, CONFIG, mixture)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [CONFIG.model, TrainedModelConfig(lora=None)], ids=["adapters in few bits", "all weights"]
)
@pytest.mark.usefixtures("quickly_compiled")
def test_experts_divided_over_four_devices_are_written_as_one_device_does(
    mixture: Path, model: TrainedModelConfig, tmp_path: Path
) -> None:
    # Entries whose gradient is nothing but rounding are left alone.
    optimizer = AdamWConfig(learning_rate=1e-2, epsilon=1e-3)
    config = CONFIG.model_copy(update={"model": model, "optimizer": optimizer, "num_steps": 2})
    if model.lora is None:
        config = config.model_copy(update={"adapter_dropout": 0.0})
    expected = the_weights(new_trial(tmp_path / "alone", config, mixture).run().output_dir("checkpoint"))
    over = config.model_copy(update={"mesh": MeshConfig(data=1, fsdp=2, expert=2)})
    assert new_trial(tmp_path / "divided", over, mixture).run_on(4).last_step == 2
    (folder,) = (tmp_path / "divided" / "scratch").glob("**/checkpoint")
    found = the_weights(folder)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, rtol=0, err_msg=name)


def the_weights(folder: Path) -> dict[str, np.ndarray]:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)
