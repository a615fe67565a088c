"""The stage on several devices that share the model."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import StageTrial, Trained, coin_rows, stored_rows

from stages.engine.cluster.config import MeshConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.grpo.config import GrpoConfig
from stages.sft.config import SftConfig


@pytest.mark.slow
def test_devices_that_share_the_model_draw_and_learn_what_one_does(trained: Trained) -> None:
    sft = trained.trial.config
    assert isinstance(sft, SftConfig)
    config = GrpoConfig(
        model=sft.model,
        optimizer=AdamWConfig(learning_rate=2e-3, epsilon=1e-3),
        num_steps=2,
        prompts_per_step=4,
        mini_batch=2,
        group_size=4,
        sampling=SamplingConfig(temperature=1.0, max_response_tokens=3),
        reward="last_integer",
        kl_coef=0.05,
        seed=3,
        train_micro_batch=1,
    )
    inputs = {"model": trained.model, "dataset": stored_rows(trained.folder, coin_rows(9, lambda n: "1"))}
    alone = StageTrial(trained.folder, "grpo", config, inputs)
    expected = load_file(alone.run().output_dir("checkpoint") / ADAPTER_FILE)
    mesh = MeshConfig(data=1, fsdp=2, sequence=2)
    divided = StageTrial(trained.folder, "grpo", config.model_copy(update={"mesh": mesh}), inputs)
    assert divided.run_on(4).last_step == 2
    scratch = trained.folder / "scratch" / divided.paths.key
    found = load_file(next(scratch.glob(f"**/checkpoint/{ADAPTER_FILE}")))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6, rtol=0, err_msg=name)
    rows, rows_alone = divided.metrics(), alone.metrics()
    assert [row.numbers["reward/mean"] for row in rows] == [row.numbers["reward/mean"] for row in rows_alone]
    assert any(row.numbers["optimizer/updates"] for row in rows)
