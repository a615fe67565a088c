"""What a teacher makes of a dataset, kept beside its rows, and what a student learns from it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stage_trial import TINY, StageTrial, StopAfter, Trained, coin_rows, external, stored, stored_rows

from stages.contract import ARTIFACT_FILE, DatasetArtifact, StoredInput
from stages.distillation.config import DistillationConfig, ForwardKlConfig, OnPolicyConfig
from stages.engine.data.records import read_dataset
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.data.top_tokens import CHECKS_FILE, IDS_FILE, LOGPROBS_FILE
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig
from stages.errors import PreemptedError, UserError
from stages.teacher_logits import run
from stages.teacher_logits.config import TeacherLogitsConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ROWS = coin_rows(7, lambda n: str(n % 2) * (1 + n % 3))
NUM_TARGETS = sum(2 + n % 3 for n in range(7))
ALL = 259
SCORING = TeacherLogitsConfig(num_top=ALL - 1, temperature=1.5, micro_batch=2)
LEARNING = DistillationConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8)),
    optimizer=AdamWConfig(learning_rate=1e-2, epsilon=1e-3),
    num_steps=2,
    batch_size=4,
    divergence=ForwardKlConfig(kind="forward_kl"),
    temperature=1.5,
    seed=4,
    train_micro_batch=2,
)


@pytest.fixture(scope="module")
def dataset(trained: Trained) -> StoredInput:
    return stored_rows(trained.folder, ROWS)


def scoring(trained: Trained, dataset: StoredInput, **changes: object) -> StageTrial:
    inputs = {"teacher": trained.model, "dataset": dataset}
    return StageTrial(trained.folder, "teacher_logits", SCORING.model_copy(update=changes), inputs)


@pytest.fixture(scope="module")
def scored(trained: Trained, dataset: StoredInput) -> Path:
    return scoring(trained, dataset).run().output_dir("dataset")


def learning(trained: Trained, dataset: StoredInput, **changes: object) -> StageTrial:
    inputs = {"model": external(TINY), "dataset": dataset}
    return StageTrial(trained.folder, "distillation", LEARNING.model_copy(update=changes), inputs)


def test_the_dataset_stays_what_it_was_and_has_the_teachers_tokens_beside_it(scored: Path) -> None:
    descriptor = DatasetArtifact.model_validate_json((scored / ARTIFACT_FILE).read_text())
    assert (descriptor.num_rows, descriptor.rows) == (7, "problem")
    assert descriptor.top_tokens is not None
    assert (descriptor.top_tokens.num_top, descriptor.top_tokens.temperature) == (ALL - 1, 1.5)
    assert read_dataset(scored) == ROWS
    ids, logprobs = (np.load(scored / name) for name in (IDS_FILE, LOGPROBS_FILE))
    assert ids.shape == (NUM_TARGETS, ALL - 1)
    np.testing.assert_allclose(np.exp(logprobs).sum(-1), 1.0, rtol=1e-5)
    # The teacher says 0 or 1 first, each about as often.
    assert set(load_tokenizer(TINY).decode(ids[0, :2].tolist())) == {"0", "1"}


def test_with_all_tokens_but_one_the_student_learns_what_it_learns_from_the_teacher_itself(
    trained: Trained, dataset: StoredInput, scored: Path
) -> None:
    found = learning(trained, stored(trained.folder, scored)).run().output_dir("checkpoint")
    trial = learning(trained, dataset)
    trial.inputs["teacher"] = trained.model
    expected = load_file(trial.run().output_dir("checkpoint") / ADAPTER_FILE)
    for name, value in load_file(found / ADAPTER_FILE).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, rtol=0, err_msg=name)


def test_scoring_that_was_stopped_goes_on_where_it_was_and_leaves_the_same_files(
    trained: Trained, dataset: StoredInput, scored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ROWS_AT_ONCE", 3)
    trial = scoring(trained, dataset)
    with pytest.raises(PreemptedError, match="stopped after 3 of 7 rows; progress is saved"):
        trial.run(StopAfter(1))
    resumed = trial.run().output_dir("dataset")
    assert {path.name for path in resumed.iterdir()} == {path.name for path in scored.iterdir()}
    for name in (ARTIFACT_FILE, CHECKS_FILE, "data.jsonl"):
        assert (resumed / name).read_bytes() == (scored / name).read_bytes()
    np.testing.assert_allclose(np.load(resumed / LOGPROBS_FILE), np.load(scored / LOGPROBS_FILE), atol=1e-5)


def test_as_many_tokens_as_there_are_are_no_selection(trained: Trained, dataset: StoredInput) -> None:
    with pytest.raises(UserError, match=f"num_top is {ALL}, but the teacher has {ALL} tokens"):
        scoring(trained, dataset, num_top=ALL).run()


def test_what_does_not_fit_the_kept_tokens_is_refused(trained: Trained, dataset: StoredInput, scored: Path) -> None:
    kept = stored(trained.folder, scored)
    on_policy = OnPolicyConfig(sampling=SamplingConfig(temperature=1.0, max_response_tokens=2))
    both = learning(trained, kept)
    both.inputs["teacher"] = trained.model
    cases = [
        (both, "take out the input `teacher`"),
        (learning(trained, dataset), "nothing to learn from: give the input `teacher`, or for `dataset`"),
        (learning(trained, kept, on_policy=on_policy), "on_policy: what the student says must be read by a teacher"),
        (learning(trained, kept, temperature=1.0), "scored at temperature 1.5, but this stage compares at 1"),
    ]
    for trial, message in cases:
        with pytest.raises(UserError, match=message):
            trial.run()


def test_rows_that_another_template_writes_otherwise_are_refused(
    trained: Trained, scored: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in TINY.iterdir():
        other.joinpath(path.name).write_bytes(path.read_bytes())
    config = other / "tokenizer_config.json"
    content = json.loads(config.read_text())
    content["chat_template"] = content["chat_template"].replace("user", "User").replace("assistant", "Assistant") + " "
    config.write_text(json.dumps(content))
    trial = learning(trained, stored(trained.folder, scored))
    trial.inputs["model"] = external(other)
    with pytest.raises(UserError, match=r"\d of 7 rows have other tokens than the teacher scored, the first of them"):
        trial.run()
