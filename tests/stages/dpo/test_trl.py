"""Steps of `dpo` against those of TRL: the same model, reference, pairs, order and optimizer."""

from pathlib import Path

import pytest
from stage_trial import TINY, StageTrial, external, stored_rows
from trl_trial import losses_of_trl, updates_of

from stages.dpo.config import DpoConfig, DpoLossConfig
from stages.engine.data.chat import Chat
from stages.engine.data.preferences import make_preferences
from stages.engine.data.records import Message, PreferenceRow
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.config import TrainedModelConfig
from stages.engine.training.config import AdamWConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOSS = DpoLossConfig(kind="dpo", beta=0.2)
CONFIG = DpoConfig(
    model=TrainedModelConfig(lora=None),
    optimizer=AdamWConfig(learning_rate=2e-5, max_grad_norm=0.5),
    num_steps=20,
    batch_size=8,
    seed=3,
    loss=LOSS,
    train_micro_batch=2,
)


def says(content: str) -> tuple[Message, ...]:
    return (Message(role="assistant", content=content),)


def pairs(num: int) -> list[PreferenceRow]:
    """Short answers are better than long ones, and prompts have many lengths."""
    return [
        PreferenceRow(
            id=f"row-{n:03d}",
            messages=(Message(role="user", content=" + ".join(map(str, range(n % 7 + 1)))),),
            chosen=says(f"that is {sum(range(n % 7 + 1))}"),
            rejected=says(f"I counted {'again and ' * (n % 5)}again: {n}"),
        )
        for n in range(num)
    ]


def test_the_first_20_losses_are_those_of_trl(tmp_path: Path) -> None:
    given, model = pairs(60), external(TINY)
    inputs = {"model": model, "reference": model, "dataset": stored_rows(tmp_path, given)}
    trial = StageTrial(tmp_path, "dpo", CONFIG, inputs)
    trial.run()
    ours = [row.numbers["loss/total"] for row in trial.metrics()]
    groups = make_preferences(given, Chat(load_tokenizer(TINY)), CONFIG.max_tokens, "fail").groups
    theirs = losses_of_trl("dpo", TINY, updates_of(CONFIG, groups, LOSS.beta), tmp_path)
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours[-1] < ours[0] - 0.2
