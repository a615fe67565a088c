"""Losses of TRL, which has an environment of its own, on given examples."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from stages.engine.data.batching import Group
from stages.engine.data.loader import batch_rows
from stages.engine.training.config import AdamWConfig, SupervisedConfig

TRL = Path(__file__).parents[2] / ".venv-trl" / "bin" / "python"
QUIETLY = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}


class Updates(NamedTuple):
    """What is trained in which steps; all weights by AdamW at a constant rate.

    Attributes:
        examples: in their order, `batch_size` for each update.
        num_steps: updates.
        batch_size: examples of one.
        learning_rate: of all.
        max_grad_norm: to which larger gradients are scaled down.
        beta: of DPO.
    """

    examples: Sequence[Group]
    num_steps: int
    batch_size: int
    learning_rate: float
    max_grad_norm: float
    beta: float = 0.1


def updates_of(config: SupervisedConfig, examples: Sequence[Group], beta: float = 0.1) -> Updates:
    """What a stage with these settings trains on, one example for each row of its dataset."""
    assert isinstance(config.optimizer, AdamWConfig)
    size, steps = config.batch_size, range(config.num_steps)
    order = [row for step in steps for row in batch_rows(len(examples), size, config.seed, step)]
    rate, norm = config.optimizer.learning_rate, config.optimizer.max_grad_norm
    return Updates([examples[row] for row in order], config.num_steps, size, rate, norm, beta)


def losses_of_trl(kind: Literal["sft", "dpo"], model: Path, updates: Updates, folder: Path) -> list[float]:
    """Of each update; skips the test where TRL is not installed."""
    if not TRL.exists():
        pytest.skip("`make .venv-trl/.installed` makes the environment of TRL")
    examples = [[list(map(int, ids)) for ids in (example.prompt, *example.responses)] for example in updates.examples]
    request = updates._asdict() | {"examples": examples, "model": str(model), "folder": str(folder / "trl")}
    file = folder / f"{kind}.json"
    file.write_text(json.dumps(request))
    script = Path(__file__).with_name("trl_losses.py")
    done = subprocess.run(
        [TRL, script, kind, file], env=os.environ | QUIETLY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
