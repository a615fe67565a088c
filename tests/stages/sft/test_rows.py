"""Supervised fine-tuning on rows of every kind that it takes."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from stage_trial import TINY, StageTrial, external, stored

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.data.records import ChatRow, LabelledRow, Message, Record, TextRow, write_dataset
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.training.config import AdamWConfig
from stages.errors import UserError
from stages.sft.config import SftConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

CONFIG = SftConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=2, alpha=4)),
    optimizer=AdamWConfig(learning_rate=1e-2),
    num_steps=3,
    batch_size=8,
    max_tokens=100,
    seed=3,
)


def trial_on(folder: Path, rows: Sequence[Record], config: SftConfig = CONFIG) -> StageTrial:
    dataset = folder / "dataset"
    dataset.mkdir()
    write_dataset(dataset, rows, type(rows[0]))
    return StageTrial(folder, "sft", config, {"model": external(TINY), "dataset": stored(folder, dataset)})


def report(trial: StageTrial) -> dict[str, float]:
    folder = trial.run().output_dir("report")
    return ReportArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text()).metrics


def talk(number: int, turns: int = 2) -> ChatRow:
    turn = (Message(role="user", content="1+1"), Message(role="assistant", content="2"))
    return ChatRow(id=f"talk-{number}", messages=turn * turns)


def test_of_conversations_the_turns_of_the_assistant_are_learnt(tmp_path: Path) -> None:
    trial = trial_on(tmp_path, [talk(n) for n in range(8)])
    found = report(trial)
    # Two turns of one token and its end.
    assert [row.numbers["data/target_tokens"] for row in trial.metrics()] == [8 * 2 * 2] * 3
    assert (found["dropped_rows"], found["truncated_rows"]) == (0, 0)
    losses = [row.numbers["loss/nll"] for row in trial.metrics()]
    assert losses[-1] < losses[0]


def test_of_conversations_the_last_turn_is_learnt_where_that_is_wanted_and_long_ones_are_left_out(
    tmp_path: Path,
) -> None:
    config = CONFIG.model_copy(update={"learn": "last_turn", "too_long": "drop", "num_steps": 1})
    trial = trial_on(tmp_path, [*(talk(n) for n in range(6)), talk(6, turns=20), talk(7, turns=30)], config)
    assert report(trial)["dropped_rows"] == 2
    assert [row.numbers["data/target_tokens"] for row in trial.metrics()] == [8 * 2]


def test_texts_are_learnt_without_a_chat_template_and_cut_where_that_is_wanted(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"too_long": "truncate", "num_steps": 1, "max_tokens": 10})
    rows = [TextRow(id=str(n), text="one two three " * (1 if n else 9)) for n in range(8)]
    trial = trial_on(tmp_path, rows, config)
    assert report(trial)["truncated_rows"] >= 1
    assert trial.metrics()[0].numbers["data/target_tokens"] <= 8 * 9


def test_rows_of_another_kind_are_refused_with_both(tmp_path: Path) -> None:
    turn = Message(role="user", content="1+1")
    row = LabelledRow(id="a", messages=(turn,), response=(Message(role="assistant", content="2"),), label=True)
    with pytest.raises(
        UserError, match="rows of kind 'labelled', but this stage takes 'problem' or 'conversation' or 'te"
    ):
        trial_on(tmp_path, [row]).run()
