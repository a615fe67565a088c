"""Training stages that are killed at any moment, again and again, end as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file, save_file
from stage_trial import TINY, StageTrial, coin_rows, external, stored_rows

from stages.contract import RESULT_FILE, Beat, StageInput, StageResult
from stages.distillation.config import DistillationConfig, JsdConfig, OnPolicyConfig
from stages.dpo.config import CombinationLossConfig, DpoConfig, DpoLossConfig, KtoLossConfig, WeightedLossConfig
from stages.engine.data.records import Message, PreferenceRow
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import AdamWConfig, EvaluateConfig
from stages.reward_model.config import RewardModelConfig
from stages.sft.config import SftConfig
from stages.store.progress import committed_points

NUM_STEPS = 12
MODEL = TrainedModelConfig(lora=LoraConfig(rank=4, alpha=8))
OPTIMIZER = AdamWConfig(learning_rate=1e-2, ema_decay=0.9)


def sft(folder: Path) -> StageTrial:
    config = SftConfig(
        model=MODEL,
        optimizer=OPTIMIZER,
        num_steps=NUM_STEPS,
        batch_size=4,
        evaluate=EvaluateConfig(every_steps=5, keep="best"),
        adapter_dropout=0.1,
        seed=3,
        train_micro_batch=2,
        save_every_steps=2,
    )
    inputs = {
        "model": external(TINY),
        "dataset": stored_rows(folder, coin_rows(17, lambda n: "1" * (1 + n * n % 13))),
        "validation": stored_rows(folder, coin_rows(5, lambda n: "1")),
    }
    return StageTrial(folder, "sft", config, inputs)


def pair(n: int) -> PreferenceRow:
    better, worse = (Message(role="assistant", content=letter * (1 + n % 5)) for letter in "ab")
    prompt = Message(role="user", content=f"{n}?")
    return PreferenceRow(id=f"pair-{n}", messages=(prompt,), chosen=(better,), rejected=(worse,), margin=n / 20)


def pairs(folder: Path) -> dict[str, StageInput]:
    """What is learnt from preferences, and what that is measured on."""
    return {
        "model": external(TINY),
        "dataset": stored_rows(folder, [pair(n) for n in range(17)]),
        "validation": stored_rows(folder, [pair(n) for n in range(20, 25)]),
    }


def dpo(folder: Path) -> StageTrial:
    """The baseline of KTO is estimated in each update, and the reference is run before the first."""
    terms = (
        WeightedLossConfig(weight=1.0, loss=DpoLossConfig(kind="dpo")),
        WeightedLossConfig(weight=0.5, loss=KtoLossConfig(kind="kto")),
    )
    config = DpoConfig(
        model=MODEL,
        optimizer=OPTIMIZER,
        num_steps=NUM_STEPS,
        batch_size=4,
        loss=CombinationLossConfig(kind="combination", terms=terms),
        evaluate=EvaluateConfig(every_steps=5, keep="best"),
        adapter_dropout=0.1,
        seed=3,
        reference_logprobs="precomputed",
        train_micro_batch=2,
        save_every_steps=2,
    )
    return StageTrial(folder, "dpo", config, pairs(folder))


def reward_model(folder: Path) -> StageTrial:
    config = RewardModelConfig(
        model=MODEL,
        optimizer=OPTIMIZER,
        num_steps=NUM_STEPS,
        batch_size=4,
        evaluate=EvaluateConfig(every_steps=5, keep="best"),
        adapter_dropout=0.1,
        centering_coef=0.1,
        seed=3,
        train_micro_batch=2,
        save_every_steps=2,
    )
    return StageTrial(folder, "reward_model", config, pairs(folder))


def distillation(folder: Path) -> StageTrial:
    config = DistillationConfig(
        model=MODEL,
        optimizer=OPTIMIZER,
        num_steps=NUM_STEPS,
        batch_size=4,
        divergence=JsdConfig(kind="jsd"),
        on_policy=OnPolicyConfig(sampling=SamplingConfig(temperature=1.0, max_response_tokens=4)),
        evaluate=EvaluateConfig(every_steps=5, keep="best"),
        adapter_dropout=0.1,
        seed=3,
        train_micro_batch=2,
        save_every_steps=2,
    )
    teacher = Path(shutil.copytree(TINY, folder / "teacher", copy_function=shutil.copy))
    weights = load_file(TINY / "model.safetensors")
    save_file({name: 1.5 * value for name, value in weights.items()}, teacher / "model.safetensors")
    inputs = {
        "model": external(TINY),
        "teacher": external(teacher),
        "dataset": stored_rows(folder, coin_rows(17, lambda n: "1" * (1 + n * n % 13))),
        "validation": stored_rows(folder, coin_rows(5, lambda n: "1")),
    }
    return StageTrial(folder, "distillation", config, inputs)


STAGES: Mapping[str, Callable[[Path], StageTrial]] = {
    "sft": sft,
    "dpo": dpo,
    "reward_model": reward_model,
    "distillation": distillation,
}


class Ended(NamedTuple):
    """What must not depend on how often a run was killed."""

    files: dict[str, bytes]
    metrics: list[tuple[int, dict[str, float]]]
    state: list[np.ndarray]


class KilledError(Exception):
    """The process was killed before it was done."""


def attempt(trial: StageTrial, kill_after: tuple[int, float] | None) -> Path:
    """Runs the next attempt in a process of its own: where its outputs are.

    Args:
        trial: of the stage.
        kill_after: steps, and seconds after their beat, when the process is killed.

    Raises:
        KilledError: it was.
    """
    reading, writing = os.pipe()
    request = trial.request().model_copy(update={"beat_fd": writing})
    file = Path(request.scratch).with_suffix(".json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(request.model_dump_json())
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    command = [sys.executable, "-m", "stages", str(file)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[writing])
    os.close(writing)
    with os.fdopen(reading) as beats:
        for line in beats:
            if kill_after is not None and Beat.model_validate_json(line).step >= kill_after[0]:
                time.sleep(kill_after[1])
                process.send_signal(signal.SIGKILL)
                break
    if process.wait(120) == -signal.SIGKILL:
        raise KilledError
    assert process.returncode == 0, StageResult.model_validate_json((Path(request.scratch) / RESULT_FILE).read_text())
    return Path(request.scratch) / "out"


def ended(trial: StageTrial, outputs: Path) -> Ended:
    """What a finished run left."""
    files = {str(path.relative_to(outputs)): path.read_bytes() for path in outputs.rglob("*") if path.is_file()}
    metrics = trial.learned()
    newest = committed_points(trial.store, trial.paths)[0]
    assert newest.step == metrics[-1][0]
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(trial.store.root / trial.paths.attempt(newest.attempt).progress(newest.step))
    return Ended(files, metrics, [np.asarray(leaf) for leaf in jax.tree.leaves(state)])


def assert_same(found: Ended, expected: Ended) -> None:
    assert found.files.keys() == expected.files.keys()
    for name, content in expected.files.items():
        assert found.files[name] == content, name
    assert json.dumps(found.metrics) == json.dumps(expected.metrics)
    for one, other in zip(found.state, expected.state, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "num_kills"), [("sft", 2), *(pytest.param(kind, 20, marks=pytest.mark.slow) for kind in STAGES)]
)
def test_a_stage_that_is_killed_at_any_moment_ends_as_one_that_was_not(
    tmp_path: Path, kind: str, num_kills: int
) -> None:
    whole = STAGES[kind](tmp_path)
    expected = ended(whole, attempt(whole, None))
    draw = random.Random(num_kills)
    kills = 0
    while kills < num_kills:
        trial = StageTrial(tmp_path, kind, whole.config, whole.inputs)
        outputs = None
        while outputs is None:
            done = max((point.step for point in committed_points(trial.store, trial.paths)), default=0)
            # Somewhere in the next few steps: what was not saved is lost, and a save may be under way.
            moment = (done + draw.randrange(4), draw.random() * 0.1) if kills < num_kills else None
            try:
                outputs = attempt(trial, moment)
            except KilledError:
                kills += 1
        assert_same(ended(trial, outputs), expected)
