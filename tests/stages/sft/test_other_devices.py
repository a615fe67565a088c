"""Training that goes on with other devices, divided in another way."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, coin_rows, external, stored_rows

from stages.engine.cluster.config import MeshConfig
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.training.config import AdamWConfig
from stages.sft.config import SftConfig

CONFIG = SftConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16)),
    # Entries whose gradient is nothing but rounding are left alone.
    optimizer=AdamWConfig(learning_rate=1e-2, epsilon=1e-3),
    num_steps=3,
    batch_size=8,
    seed=5,
    train_micro_batch=4,
    save_every_steps=1,
)


def new_trial(folder: Path) -> StageTrial:
    rows = stored_rows(folder, coin_rows(30, lambda n: str(n // 3 % 2)))
    return StageTrial(folder, "sft", CONFIG, {"model": external(TINY), "dataset": rows})


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
def test_a_run_resumed_on_four_devices_and_then_on_two_gives_the_adapter_of_one(tmp_path: Path) -> None:
    alone = new_trial(tmp_path / "alone")
    expected = load_file(alone.run().output_dir("checkpoint") / ADAPTER_FILE)
    trial = new_trial(tmp_path / "moved")
    trial.config = CONFIG.model_copy(update={"num_steps": 1})
    trial.run()
    trial.config = CONFIG.model_copy(update={"num_steps": 2, "mesh": MeshConfig(data=2, fsdp=2)})
    assert trial.run_on(4).first_step == 2
    trial.config = CONFIG.model_copy(update={"mesh": MeshConfig(sequence=2)})
    assert trial.run_on(2).first_step == 3
    found = load_file(max((tmp_path / "moved" / "scratch").glob(f"**/checkpoint/{ADAPTER_FILE}")))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, rtol=0, err_msg=name)
