"""Reward models of which all weights are trained, that are trained further, or on several devices."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import StageTrial, stored

from stages.contract import ARTIFACT_FILE, ModelArtifact
from stages.engine.cluster.config import MeshConfig
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.models.reward_head import HEAD_FILE
from stages.engine.training.config import AdamWConfig, EvaluateConfig
from stages.reward_model.calibration import SAMPLES_FILE
from stages.reward_model.config import RewardModelConfig

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

MakeTrial = Callable[[Path, RewardModelConfig], StageTrial]
CONFIG = RewardModelConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
    # Entries whose gradient is nothing but rounding are left alone.
    optimizer=AdamWConfig(learning_rate=1e-2, epsilon=1e-3),
    num_steps=3,
    batch_size=8,
    evaluate=EvaluateConfig(every_steps=3),
    centering_coef=0.01,
    seed=1,
    train_micro_batch=4,
    save_every_steps=1,
)


def read_rewards(report: Path) -> list[tuple[float, float]]:
    samples = [json.loads(line) for line in (report / SAMPLES_FILE).read_text().splitlines()]
    return [(sample["chosen_reward"], sample["rejected_reward"]) for sample in samples]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_of_all_weights_a_whole_model_with_its_head_is_written_and_trained_further(
    tmp_path: Path, make_trial: MakeTrial, precision: str
) -> None:
    how = TrainedModelConfig.model_validate({"lora": None, "precision": precision})
    config = CONFIG.model_copy(update={"model": how, "num_steps": 12, "optimizer": AdamWConfig(learning_rate=3e-3)})
    trial = make_trial(tmp_path, config)
    folder = trial.run().output_dir("checkpoint")
    last = trial.metrics()[-1].numbers
    assert last["validation/rewards/accuracy"] == 1
    artifact = ModelArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text())
    assert (artifact.whole, artifact.head) == (True, None)
    tensors = load_file(folder / "model.safetensors")
    assert tensors["score.weight"].shape == (1, 64)
    assert "lm_head.weight" not in tensors

    # An adapter goes on from that head.
    inputs = trial.inputs | {"model": stored(tmp_path, folder)}
    further = StageTrial(tmp_path, "reward_model", CONFIG.model_copy(update={"num_steps": 1}), inputs)
    further.run()
    first = further.metrics()[0].numbers
    assert first["rewards/accuracy"] == 1
    assert first["rewards/margin"] > last["rewards/margin"] / 2


def test_an_adapter_is_trained_further_with_its_head(tmp_path: Path, make_trial: MakeTrial) -> None:
    first = make_trial(tmp_path, CONFIG.model_copy(update={"num_steps": 6}))
    inputs = first.inputs | {"model": stored(tmp_path, first.run().output_dir("checkpoint"))}
    further = StageTrial(tmp_path, "reward_model", CONFIG.model_copy(update={"num_steps": 1, "seed": 9}), inputs)
    further.run()
    before, after = (trial.metrics()[at].numbers for trial, at in ((first, -1), (further, 0)))
    assert after["rewards/accuracy"] == before["validation/rewards/accuracy"] == 1
    assert after["rewards/margin"] > before["validation/rewards/margin"] / 2


def test_a_run_resumed_on_other_devices_gives_the_model_and_the_report_of_one(
    tmp_path: Path, make_trial: MakeTrial
) -> None:
    alone = make_trial(tmp_path / "alone", CONFIG).run()
    trial = make_trial(tmp_path / "moved", CONFIG.model_copy(update={"num_steps": 1}))
    trial.run()
    trial.config = CONFIG.model_copy(update={"num_steps": 2, "mesh": MeshConfig(data=2, fsdp=2)})
    assert trial.run_on(4).first_step == 2
    trial.config = CONFIG.model_copy(update={"mesh": MeshConfig(sequence=2)})
    assert trial.run_on(2).first_step == 3
    found = max((tmp_path / "moved" / "scratch").glob("**/out"))
    for name in (ADAPTER_FILE, HEAD_FILE):
        expected = load_file(alone.output_dir("checkpoint") / name)
        for tensor, value in load_file(found / "checkpoint" / name).items():
            np.testing.assert_allclose(value, expected[tensor], atol=1e-6, rtol=0, err_msg=tensor)
    expected, rewards = (read_rewards(folder) for folder in (alone.output_dir("report"), found / "report"))
    np.testing.assert_allclose(rewards, expected, atol=1e-4)
