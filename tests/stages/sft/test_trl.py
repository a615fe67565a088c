"""Steps of `sft` against those of TRL: the same model, data, order and optimizer."""

from pathlib import Path

import pytest
from stage_trial import TINY, StageTrial, external, stored_rows
from trl_trial import losses_of_trl, updates_of

from stages.engine.data.chat import Chat
from stages.engine.data.examples import fit_lengths, problem_rows
from stages.engine.data.records import Message, Row
from stages.engine.data.tokenizer import load_tokenizer
from stages.engine.models.config import TrainedModelConfig
from stages.engine.training.config import AdamWConfig
from stages.sft.config import SftConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = SftConfig(
    model=TrainedModelConfig(lora=None),
    optimizer=AdamWConfig(learning_rate=1e-3, max_grad_norm=0.5),
    num_steps=20,
    batch_size=8,
    seed=3,
    train_micro_batch=2,
)


def rows(num: int) -> list[Row]:
    """Sums, of many lengths."""
    return [
        Row(
            id=f"row-{n:03d}",
            messages=(Message(role="user", content=" + ".join(map(str, range(n % 7 + 1)))),),
            response=f"that is {sum(range(n % 7 + 1))}, {'as I counted ' * (n % 5)}and no more",
            answer=str(sum(range(n % 7 + 1))),
        )
        for n in range(num)
    ]


def test_the_first_20_losses_are_those_of_trl(tmp_path: Path) -> None:
    given = rows(60)
    trial = StageTrial(tmp_path, "sft", CONFIG, {"model": external(TINY), "dataset": stored_rows(tmp_path, given)})
    trial.run()
    ours = [row.numbers["loss/nll"] for row in trial.metrics()]
    examples = fit_lengths(problem_rows(given, Chat(load_tokenizer(TINY))), CONFIG.max_tokens, "error").groups
    theirs = losses_of_trl("sft", TINY, updates_of(CONFIG, examples), tmp_path)
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours[-1] < ours[0] - 0.5
