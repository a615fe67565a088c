"""Group relative policy optimization of a policy that says one of two digits, whole."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from stage_trial import StageTrial, StopAfter, Trained, coin_rows, stored_rows

from stages.contract import ARTIFACT_FILE, ModelArtifact, ReportArtifact
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.errors import PreemptedError, UserError
from stages.grpo.config import GrpoConfig
from stages.sft.config import SftConfig

NUM_STEPS, PROMPTS, GROUP = 8, 4, 4


def make_trial(trained: Trained, answer: str = "1", **changes: object) -> StageTrial:
    """From the trained policy, on prompts whose right answer is always the same."""
    sft = trained.trial.config
    assert isinstance(sft, SftConfig)
    config = GrpoConfig(
        model=sft.model,
        optimizer=AdamWConfig(learning_rate=2e-3),
        num_steps=NUM_STEPS,
        prompts_per_step=PROMPTS,
        mini_batch=2,
        group_size=GROUP,
        sampling=SamplingConfig(temperature=1.0, max_response_tokens=3),
        reward="last_integer",
        kl_coef=0.05,
        seed=3,
        train_micro_batch=1,
        rollout_micro_batch=2,
        save_every_steps=3,
    )
    dataset = stored_rows(trained.folder, coin_rows(9, lambda n: answer))
    inputs = {"model": trained.model, "dataset": dataset}
    return StageTrial(trained.folder, "grpo", config.model_copy(update=changes), inputs)


def numbers(trial: StageTrial) -> list[Mapping[str, float]]:
    rows = trial.learned()
    assert [step for step, _ in rows] == list(range(1, len(rows) + 1))
    return [numbers for _, numbers in rows]


def column(rows: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [row[name] for row in rows if name in row]


class Done:
    """A finished run."""

    def __init__(self, trial: StageTrial) -> None:
        context = trial.run()
        self.rows = numbers(trial)
        checkpoint, report = context.output_dir("checkpoint"), context.output_dir("report")
        self.adapter = (checkpoint / ADAPTER_FILE).read_bytes()
        self.artifact = ModelArtifact.model_validate_json((checkpoint / ARTIFACT_FILE).read_text())
        self.counters = ReportArtifact.model_validate_json((report / ARTIFACT_FILE).read_text()).metrics


@pytest.fixture(scope="module")
def done(trained: Trained) -> Done:
    """Two updates a step, with a KL term."""
    return Done(make_trial(trained))


def test_the_rewarded_answer_becomes_more_likely(done: Done) -> None:
    rewards = column(done.rows, "reward/mean")
    assert len(rewards) == NUM_STEPS
    assert np.mean(rewards[:2]) < 0.6
    assert np.mean(rewards[-2:]) > np.mean(rewards[:2]) + 0.2


def test_counters_are_those_of_the_steps(done: Done) -> None:
    assert done.counters["step"] == NUM_STEPS
    assert done.counters["rows"] == NUM_STEPS * PROMPTS
    assert done.counters["updates"] == sum(column(done.rows, "optimizer/updates"))
    assert set(column(done.rows, "optimizer/updates")) <= {0.0, 1.0, 2.0}
    assert 2.0 in column(done.rows, "optimizer/updates")
    assert 0 < done.counters["tokens"] <= NUM_STEPS * PROMPTS * GROUP * 3


def test_the_reference_is_the_input_and_the_policy_moves_away_from_it(done: Done) -> None:
    kl = column(done.rows, "loss/kl")
    assert 0 <= kl[0] < kl[-1]
    assert np.mean(column(done.rows, "rollout/logprob_gap")) > 1e-4


def test_the_checkpoint_stands_over_the_same_base_with_the_same_kind_of_adapter(done: Done, trained: Trained) -> None:
    before = ModelArtifact.model_validate_json((trained.outputs["checkpoint"] / ARTIFACT_FILE).read_text())
    assert done.artifact == before
    assert done.adapter != (trained.outputs["checkpoint"] / ADAPTER_FILE).read_bytes()


def test_a_run_that_was_stopped_and_resumed_leaves_the_same_adapter_and_metrics(done: Done, trained: Trained) -> None:
    trial = make_trial(trained)
    for steps in (1, 4):
        with pytest.raises(PreemptedError):
            trial.run(StopAfter(steps))
    resumed = Done(trial)
    assert resumed.adapter == done.adapter
    assert resumed.rows == done.rows
    assert resumed.counters == done.counters


def test_on_policy_the_sampler_and_the_trainer_agree_and_nothing_is_clipped(trained: Trained) -> None:
    rows = Done(make_trial(trained, mini_batch=PROMPTS, kl_coef=0.0, train_micro_batch=2)).rows
    assert max(column(rows, "rollout/logprob_gap")) < 1e-4
    assert set(column(rows, "loss/clipped_rate")) == {0.0}
    assert column(rows, "loss/kl") == []
    assert column(rows, "loss/total") == column(rows, "loss/policy")


def test_steps_whose_groups_are_all_tied_change_nothing_and_say_so(trained: Trained) -> None:
    tied = Done(make_trial(trained, answer="777", num_steps=2))
    assert tied.adapter == (trained.outputs["checkpoint"] / ADAPTER_FILE).read_bytes()
    assert tied.counters == {"step": 2, "updates": 0, "rows": 2 * PROMPTS, "tokens": 0, "skipped_updates": 0}
    for name, value in (("reward/mean", 0.0), ("rollout/mixed_groups", 0.0), ("optimizer/updates", 0.0)):
        assert column(tied.rows, name) == [value, value]
    assert column(tied.rows, "loss/total") == []


def test_responses_that_leave_the_models_context_are_refused_before_sampling(trained: Trained) -> None:
    trial = make_trial(trained, sampling=SamplingConfig(temperature=1.0, max_response_tokens=500))
    with pytest.raises(UserError, match=r"take \d+ tokens, more than the 512 of the model's context"):
        trial.run()


def test_a_step_of_more_prompts_than_the_dataset_has_is_refused(trained: Trained) -> None:
    with pytest.raises(UserError, match="prompts_per_step is 10, but the dataset has 9 rows"):
        make_trial(trained, prompts_per_step=10).run()
