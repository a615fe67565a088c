"""Learning from preferences on several devices, which share the pairs of an update."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, external, stored_rows

from stages.dpo.config import CombinationLossConfig, DpoConfig, DpoLossConfig, KtoLossConfig, WeightedLossConfig
from stages.engine.cluster.config import MeshConfig
from stages.engine.data.records import Message, PreferenceRow
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.training.config import AdamWConfig

TERMS = (
    WeightedLossConfig(weight=1.0, loss=DpoLossConfig(kind="dpo")),
    WeightedLossConfig(weight=0.5, loss=KtoLossConfig(kind="kto")),
)
CONFIG = DpoConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16)),
    # Entries whose gradient is nothing but rounding are left alone.
    optimizer=AdamWConfig(learning_rate=1e-2, epsilon=1e-3),
    num_steps=2,
    batch_size=8,
    seed=5,
    loss=CombinationLossConfig(kind="combination", terms=TERMS),
    train_micro_batch=4,
)


def pair(n: int) -> PreferenceRow:
    better, worse = (Message(role="assistant", content=letter * (1 + n % 5)) for letter in "ab")
    return PreferenceRow(
        id=f"pair-{n}", messages=(Message(role="user", content=f"{n}?"),), chosen=(better,), rejected=(worse,)
    )


def new_trial(folder: Path, config: DpoConfig) -> StageTrial:
    rows = stored_rows(folder, [pair(n) for n in range(20)])
    return StageTrial(folder, "dpo", config, {"model": external(TINY), "dataset": rows})


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("when", ["each_step", "precomputed"])
def test_eight_devices_give_the_adapter_of_one(tmp_path: Path, when: str) -> None:
    expected = load_file(new_trial(tmp_path / "alone", CONFIG).run().output_dir("checkpoint") / ADAPTER_FILE)
    mesh = MeshConfig(data=2, fsdp=4)
    trial = new_trial(tmp_path / "eight", CONFIG.model_copy(update={"mesh": mesh, "reference_logprobs": when}))
    assert trial.run_on(8).outcome == "done"
    found = load_file(max((tmp_path / "eight" / "scratch").glob(f"**/checkpoint/{ADAPTER_FILE}")))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6, rtol=0, err_msg=name)
