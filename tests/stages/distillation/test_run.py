"""Distillation of a tiny teacher into a tiny student, whole."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from stage_trial import TINY, StageTrial, StopAfter, Trained, coin_rows, external, stored_rows

from stages.contract import ARTIFACT_FILE, ModelArtifact, ReportArtifact
from stages.distillation.config import DistillationConfig, JsdConfig, OnPolicyConfig, ReverseKlConfig
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig, EvaluateConfig
from stages.errors import PreemptedError, UserError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

CONFIG = DistillationConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
    optimizer=AdamWConfig(learning_rate=2e-2),
    num_steps=8,
    batch_size=6,
    divergence=JsdConfig(kind="jsd", beta=0.4),
    temperature=1.5,
    seed=4,
    save_every_steps=2,
)
ON_POLICY = OnPolicyConfig(sampling=SamplingConfig(temperature=1.0, max_response_tokens=3), rollout_micro_batch=4)


def make_trial(trained: Trained, **changes: object) -> StageTrial:
    """A fresh adapter learns from the policy that says one of two digits."""
    dataset = stored_rows(trained.folder, coin_rows(12, lambda n: str(n % 2)))
    inputs = {"model": external(TINY), "teacher": trained.model, "dataset": dataset}
    return StageTrial(trained.folder, "distillation", CONFIG.model_copy(update=changes), inputs)


class Done:
    """A finished run."""

    def __init__(self, trial: StageTrial) -> None:
        context = trial.run()
        self.rows = numbers(trial)
        checkpoint, report = context.output_dir("checkpoint"), context.output_dir("report")
        self.adapter = (checkpoint / ADAPTER_FILE).read_bytes()
        self.artifact = ModelArtifact.model_validate_json((checkpoint / ARTIFACT_FILE).read_text())
        self.counters = ReportArtifact.model_validate_json((report / ARTIFACT_FILE).read_text()).metrics


def numbers(trial: StageTrial) -> list[Mapping[str, float]]:
    rows = trial.learned()
    assert [step for step, _ in rows] == list(range(1, len(rows) + 1))
    return [numbers for _, numbers in rows]


def test_the_student_comes_closer_to_its_teacher_and_a_run_that_was_stopped_leaves_the_same(trained: Trained) -> None:
    done = Done(make_trial(trained))
    losses = [row["loss/total"] for row in done.rows]
    assert losses[0] > 0.3
    assert losses[-1] < losses[0] / 3
    assert done.artifact.base == external(TINY).source
    assert done.counters["step"] == CONFIG.num_steps
    trial = make_trial(trained)
    with pytest.raises(PreemptedError):
        trial.run(StopAfter(3))
    resumed = Done(trial)
    assert (resumed.adapter, resumed.rows, resumed.counters) == (done.adapter, done.rows, done.counters)


def test_on_its_own_responses_too(trained: Trained) -> None:
    done = Done(make_trial(trained, divergence=ReverseKlConfig(kind="reverse_kl"), on_policy=ON_POLICY))
    assert np.mean([row["loss/total"] for row in done.rows[-2:]]) < done.rows[0]["loss/total"] / 2
    # Each update draws anew: how many tokens there are to learn from varies.
    assert len({row["data/target_tokens"] for row in done.rows}) > 1


@pytest.mark.slow
def test_a_student_that_learns_from_its_own_responses_is_evaluated_on_those_of_others(trained: Trained) -> None:
    trial = make_trial(trained, on_policy=ON_POLICY, adapter_dropout=0.1, evaluate=EvaluateConfig(every_steps=4))
    trial.inputs["validation"] = stored_rows(trained.folder, coin_rows(4, str))
    done = Done(trial)
    found = [row["validation/total"] for row in done.rows if "validation/total" in row]
    assert len(found) == 2
    assert found[1] < found[0]
    again = make_trial(trained, on_policy=ON_POLICY, adapter_dropout=0.1, evaluate=EvaluateConfig(every_steps=4))
    again.inputs["validation"] = trial.inputs["validation"]
    with pytest.raises(PreemptedError):
        again.run(StopAfter(5))
    resumed = Done(again)
    assert (resumed.adapter, resumed.rows) == (done.adapter, done.rows)


@pytest.mark.slow
def test_a_student_that_is_its_teacher_has_nothing_to_learn(trained: Trained) -> None:
    trial = make_trial(trained, num_steps=1, model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16)))
    trial.inputs["model"] = trained.model
    (row,) = Done(trial).rows
    assert abs(row["loss/total"]) < 1e-6
    assert row["optimizer/grad_norm"] < 1e-4


def test_a_teacher_with_another_tokenizer_is_refused(trained: Trained, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in TINY.iterdir():
        content = path.read_bytes()
        other.joinpath(path.name).write_bytes(
            content.replace(b'"a":', b'"\\u00e4\\u00e4":') if path.name == "tokenizer.json" else content
        )
    trial = make_trial(trained)
    trial.inputs["teacher"] = external(other)
    with pytest.raises(UserError, match=r"input `teacher`: .* has another tokenizer"):
        trial.run()


def test_responses_that_leave_the_teachers_context_are_refused(trained: Trained) -> None:
    long = ON_POLICY.model_copy(update={"sampling": SamplingConfig(temperature=1.0, max_response_tokens=500)})
    with pytest.raises(UserError, match=r"take \d+ tokens, more than the 512 of the model's context"):
        make_trial(trained, on_policy=long).run()
