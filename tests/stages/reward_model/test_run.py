"""A reward model trained on the tiny model, whole."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, StopAfter, external, stored, stored_rows

from stages.context import RunContext
from stages.contract import ARTIFACT_FILE, ModelArtifact, ReportArtifact
from stages.engine.data.records import PreferenceRow
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.opened import open_model
from stages.engine.models.reward_head import HEAD_FILE, fresh_head
from stages.engine.training.config import AdamWConfig, EvaluateConfig
from stages.errors import PreemptedError, UserError
from stages.reward_model.config import RewardModelConfig
from stages.sft.config import SftConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

MakePairs = Callable[[int, int], list[PreferenceRow]]
MakeTrial = Callable[[Path, RewardModelConfig], StageTrial]
NUM_STEPS = 6
CONFIG = RewardModelConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
    optimizer=AdamWConfig(learning_rate=1e-2),
    num_steps=NUM_STEPS,
    batch_size=8,
    evaluate=EvaluateConfig(every_steps=3),
    centering_coef=0.01,
    seed=1,
    train_micro_batch=4,
    save_every_steps=2,
)


def report_of(context: RunContext) -> ReportArtifact:
    return ReportArtifact.model_validate_json((context.output_dir("report") / ARTIFACT_FILE).read_text())


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, make_trial: MakeTrial) -> StageTrial:
    return make_trial(tmp_path_factory.mktemp("reward"), CONFIG)


@pytest.fixture(scope="module")
def trained(trial: StageTrial) -> RunContext:
    return trial.run()


def test_the_better_responses_get_the_higher_rewards(trial: StageTrial, trained: RunContext) -> None:
    rows = [numbers for _, numbers in trial.learned()]
    assert rows[0]["rewards/accuracy"] == 0
    assert rows[-1]["rewards/accuracy"] == 1
    assert rows[-1]["loss/preference"] < 0.1 < np.log(2) < rows[0]["loss/preference"]
    for numbers in rows:
        parts = numbers["loss/preference"] + CONFIG.centering_coef * numbers["loss/centering"]
        np.testing.assert_allclose(numbers["loss/total"], parts, rtol=1e-5)
        lead = numbers["rewards/chosen"] - numbers["rewards/rejected"]
        np.testing.assert_allclose(numbers["rewards/margin"], lead, atol=1e-5)


def test_the_report_has_accuracy_and_calibration_on_pairs_that_were_not_learnt(
    trial: StageTrial, trained: RunContext
) -> None:
    report, last = report_of(trained), trial.learned()[-1][1]
    assert report.metrics["accuracy"] == last["validation/rewards/accuracy"] == 1
    np.testing.assert_allclose(report.metrics["mean_margin"], last["validation/rewards/margin"], rtol=1e-4)
    assert report.samples_file is not None
    lines = (trained.output_dir("report") / report.samples_file).read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert [sample["id"] for sample in samples] == [f"pair-{n:03d}" for n in range(50, 56)]
    means = {name: np.mean([sample[f"{name}_reward"] for sample in samples]) for name in ("chosen", "rejected")}
    np.testing.assert_allclose(means["chosen"] - means["rejected"], report.metrics["mean_margin"], rtol=1e-5)
    assert 0 <= report.metrics["calibration_error"] < 0.5
    assert sum(value for name, value in report.metrics.items() if name.endswith("_pairs")) == len(samples)


def test_the_head_is_trained_and_lies_beside_the_adapter(trained: RunContext) -> None:
    folder = trained.output_dir("checkpoint")
    artifact = ModelArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text())
    assert artifact.head == HEAD_FILE
    assert not any("head" in name for name in load_file(folder / "adapter.safetensors"))
    (name, head), *others = load_file(folder / HEAD_FILE).items()
    assert not others
    assert 1e-3 < np.abs(head - np.asarray(fresh_head(64, CONFIG.seed)[name])).max() < 1


def test_a_run_that_was_stopped_leaves_the_same_files_and_metrics(trial: StageTrial, trained: RunContext) -> None:
    again = StageTrial(trained.output_dir("report").parents[4], "reward_model", CONFIG, trial.inputs)
    with pytest.raises(PreemptedError, match="stopped after step 4 of 6"):
        again.run(StopAfter(4))
    context = again.run()
    assert context.first_step == 5
    for output in ("checkpoint", "report"):
        for path in trained.output_dir(output).iterdir():
            assert (context.output_dir(output) / path.name).read_bytes() == path.read_bytes(), path.name
    assert again.learned() == trial.learned()


def test_it_is_no_language_model_for_other_stages(tmp_path: Path, trained: RunContext) -> None:
    given = stored(tmp_path, trained.output_dir("checkpoint"))
    config = SftConfig(model=CONFIG.model, optimizer=CONFIG.optimizer, num_steps=1, batch_size=1, seed=0)
    with pytest.raises(UserError, match="this is a reward model"):
        open_model(StageTrial(tmp_path, "sft", config, {"model": given}).context())


def test_pairs_of_equal_responses_are_refused_unless_they_are_left_out(tmp_path: Path, make_pairs: MakePairs) -> None:
    (pair,) = make_pairs(3, 1)
    rows = [pair.model_copy(update={"rejected": pair.chosen})]
    inputs = {"model": external(TINY), "dataset": stored_rows(tmp_path, rows)}
    config = CONFIG.model_copy(update={"evaluate": None})
    with pytest.raises(UserError, match="row pair-003: chosen and rejected are the same"):
        StageTrial(tmp_path, "reward_model", config, inputs).run()
