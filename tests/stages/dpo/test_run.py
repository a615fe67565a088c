"""Learning of the tiny model from preferences, whole."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stage_trial import TINY, StageTrial, StopAfter, Trained, coin_rows, external, stored_rows

from stages.context import RunContext
from stages.contract import StageInput
from stages.dpo.config import (
    CombinationLossConfig,
    DpoConfig,
    DpoLossConfig,
    KtoLossConfig,
    LikelihoodLossConfig,
    SimpoLossConfig,
    WeightedLossConfig,
)
from stages.engine.data.records import LabelledRow, Message, PreferenceRow
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import ADAPTER_FILE
from stages.engine.training.config import AdamWConfig, EvaluateConfig
from stages.errors import PreemptedError, UserError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

NUM_STEPS = 8
CONFIG = DpoConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16)),
    optimizer=AdamWConfig(learning_rate=3e-3),
    num_steps=NUM_STEPS,
    batch_size=8,
    seed=5,
    loss=DpoLossConfig(kind="dpo"),
    evaluate=EvaluateConfig(every_steps=4),
    train_micro_batch=4,
    save_every_steps=3,
)


def says(content: str) -> tuple[Message, ...]:
    return (Message(role="assistant", content=content),)


def coin_pairs(num: int) -> list[PreferenceRow]:
    """Of two tosses the even one is better."""
    return [
        PreferenceRow(
            id=f"row-{n:03d}",
            messages=(Message(role="user", content=f"coin {n % 3}?"),),
            chosen=says(str(2 * (n // 3 % 3))),
            rejected=says(str(2 * (n // 3 % 3) + 1)),
        )
        for n in range(num)
    ]


def coin_labels(num: int) -> list[LabelledRow]:
    """An even toss is good."""
    return [
        LabelledRow(
            id=f"row-{n:03d}",
            messages=(Message(role="user", content=f"coin {n % 3}?"),),
            response=says(str(n % 4)),
            label=n % 2 == 0,
        )
        for n in range(num)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dpo")


@pytest.fixture(scope="module")
def inputs(folder: Path) -> dict[str, StageInput]:
    pairs = coin_pairs(36)
    return {
        "model": external(TINY),
        "dataset": stored_rows(folder, pairs[:24]),
        "validation": stored_rows(folder, pairs[24:]),
    }


Finished = tuple[StageTrial, RunContext]


@pytest.fixture(scope="module")
def learned(folder: Path, inputs: dict[str, StageInput]) -> Finished:
    trial = StageTrial(folder, "dpo", CONFIG, inputs)
    return trial, trial.run()


def numbers_of(trial: StageTrial) -> list[dict[str, float]]:
    """What each step says about learning; the clock is left out."""
    return [numbers for _, numbers in trial.learned()]


def test_the_policy_starts_as_its_reference_and_comes_to_prefer_what_is_chosen(learned: Finished) -> None:
    first, *_, last = numbers_of(learned[0])
    assert first["loss/total"] == pytest.approx(np.log(2), rel=1e-5)
    assert first["rewards/margin"] == pytest.approx(0.0, abs=1e-5)
    assert last["rewards/accuracy"] == 1.0
    assert last["rewards/margin"] == pytest.approx(last["rewards/chosen"] - last["rewards/rejected"], rel=1e-5)
    assert last["loss/total"] < 0.6


def test_an_evaluation_measures_the_same_on_other_rows(learned: Finished) -> None:
    rows = numbers_of(learned[0])
    assert [step for step, row in enumerate(rows, start=1) if "validation/total" in row] == [4, 8]
    assert rows[-1].keys() >= {
        f"validation/{name}/{side}" for name in ("rewards", "logps") for side in ("chosen", "rejected")
    }
    assert rows[-1]["validation/rewards/accuracy"] == 1.0
    assert rows[-1]["validation/total"] < rows[3]["validation/total"] < np.log(2)


def assert_same_files(found: RunContext, expected: RunContext) -> None:
    for output in ("checkpoint", "report"):
        for path in expected.output_dir(output).iterdir():
            assert (found.output_dir(output) / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_run_that_was_stopped_twice_leaves_the_same_files_and_metrics(
    folder: Path, inputs: dict[str, StageInput], learned: Finished
) -> None:
    trial = StageTrial(folder, "dpo", CONFIG, inputs)
    for steps in (2, 4):
        with pytest.raises(PreemptedError, match="progress is saved"):
            trial.run(StopAfter(steps))
    context = trial.run()
    assert context.first_step == 7
    assert_same_files(context, learned[1])
    assert numbers_of(trial) == numbers_of(learned[0])


def test_a_reference_that_is_computed_before_gives_the_same_and_is_kept_for_the_next_attempt(
    folder: Path, inputs: dict[str, StageInput], learned: Finished
) -> None:
    config = CONFIG.model_copy(update={"reference_logprobs": "precomputed"})
    trial = StageTrial(folder, "dpo", config, inputs)
    with pytest.raises(PreemptedError, match="stopped after the reference scored 0 of 24 rows"):
        trial.run(StopAfter(1))
    with pytest.raises(PreemptedError, match="stopped after step 2"):
        trial.run(StopAfter(3 + 2 + 2))
    tables = {path: path.stat().st_mtime_ns for path in (folder / "cache" / "reference_logps").iterdir()}
    assert len(tables) == 2
    context = trial.run()
    assert {path: path.stat().st_mtime_ns for path in (folder / "cache" / "reference_logps").iterdir()} == tables
    for found, expected in zip(numbers_of(trial), numbers_of(learned[0]), strict=True):
        # At the start all rewards are 0 but for rounding, which decides what is preferred.
        ties = {"rewards/accuracy": expected["rewards/accuracy"]} if abs(expected["rewards/margin"]) < 1e-5 else {}
        assert {**found, **ties} == pytest.approx(expected, rel=1e-4, abs=1e-5)
    again = StageTrial(folder, "dpo", config, inputs)
    assert_same_files(again.run(), context)


@pytest.mark.slow
def test_another_model_as_the_reference_is_what_the_policy_is_compared_with(trained: Trained) -> None:
    config = CONFIG.model_copy(update={"num_steps": 1, "evaluate": None})
    given = {"model": external(TINY), "reference": trained.model, **dataset(trained.folder)}
    trial = StageTrial(trained.folder, "dpo", config, given)
    trial.run()
    (numbers,) = numbers_of(trial)
    assert numbers["rewards/margin"] != 0.0
    assert numbers["loss/total"] != pytest.approx(np.log(2), rel=1e-5)


def dataset(folder: Path) -> dict[str, StageInput]:
    return {"dataset": stored_rows(folder, coin_pairs(24))}


def test_a_policy_that_begins_as_an_adapter_is_compared_with_that_adapter(trained: Trained) -> None:
    config = CONFIG.model_copy(update={"num_steps": 1, "evaluate": None})
    trial = StageTrial(trained.folder, "dpo", config, {"model": trained.model, **dataset(trained.folder)})
    context = trial.run()
    (numbers,) = numbers_of(trial)
    assert (numbers["rewards/margin"], numbers["rewards/chosen"]) == pytest.approx((0.0, 0.0), abs=1e-5)
    written = (context.output_dir("checkpoint") / ADAPTER_FILE).read_bytes()
    assert written != (trained.outputs["checkpoint"] / ADAPTER_FILE).read_bytes()


@pytest.mark.slow
def test_kto_learns_from_single_labelled_responses(folder: Path) -> None:
    config = CONFIG.model_copy(update={"loss": KtoLossConfig(kind="kto"), "evaluate": None})
    given = {"model": external(TINY), "dataset": stored_rows(folder, coin_labels(24))}
    trial = StageTrial(folder, "dpo", config, given)
    trial.run()
    first, *_, last = numbers_of(trial)
    assert first["loss/total"] == pytest.approx(0.5, abs=1e-6)
    assert last["rewards/chosen"] > 0.0 > last["rewards/rejected"]
    assert last["loss/total"] < 0.49


Refusal = tuple[DpoConfig, Callable[[Path], dict[str, StageInput]], str]
REFUSALS: dict[str, Refusal] = {
    "a reference that the loss does not read": (
        CONFIG.model_copy(update={"loss": SimpoLossConfig(kind="simpo"), "evaluate": None}),
        lambda folder: {**dataset(folder), "reference": external(TINY)},
        "a loss of kind simpo has no reference; take out the input `reference`",
    ),
    "labels without KTO": (
        CONFIG.model_copy(update={"evaluate": None}),
        lambda folder: {"dataset": stored_rows(folder, coin_labels(4))},
        "rows of kind 'labelled', but this stage takes 'preference'",
    ),
    "problems": (
        CONFIG.model_copy(update={"loss": KtoLossConfig(kind="kto"), "evaluate": None}),
        lambda folder: {"dataset": stored_rows(folder, coin_rows(4, str))},
        "rows of kind 'problem', but this stage takes 'preference' or 'labelled'",
    ),
    "labels in a combination with what needs pairs": (
        CONFIG.model_copy(
            update={
                "evaluate": None,
                "loss": CombinationLossConfig(
                    kind="combination",
                    terms=(
                        WeightedLossConfig(weight=1.0, loss=KtoLossConfig(kind="kto")),
                        WeightedLossConfig(weight=1.0, loss=LikelihoodLossConfig(kind="sft")),
                    ),
                ),
            }
        ),
        lambda folder: {"dataset": stored_rows(folder, coin_labels(4))},
        "rows of kind 'labelled', but this stage takes 'preference'",
    ),
    "pairs that are too long": (
        CONFIG.model_copy(update={"max_tokens": 8, "evaluate": None}),
        dataset,
        r"row row-000: prompt and chosen have \d+ tokens, more than max_tokens = 8; .*; so 24 of 24 rows",
    ),
}


@pytest.mark.parametrize(("config", "given", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_learnt_from_is_refused_before_weights_are_read(
    tmp_path: Path, config: DpoConfig, given: Callable[[Path], dict[str, StageInput]], message: str
) -> None:
    trial = StageTrial(tmp_path, "dpo", config, {"model": external(TINY), **given(tmp_path)})
    with pytest.raises(UserError, match=message):
        trial.run()
    assert trial.metrics() == []
