"""A policy that is trained once for all tests that need one, and compilation in a hurry."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import jax
import pytest
from stage_trial import TINY, StageTrial, Trained, coin_rows, external, stored, stored_rows

from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.training.config import AdamWConfig
from stages.sft.config import SftConfig

CONFIG = SftConfig(
    model=TrainedModelConfig(lora=LoraConfig(rank=8, alpha=16)),
    optimizer=AdamWConfig(learning_rate=1e-2, warmup_steps=3),
    num_steps=30,
    batch_size=8,
    seed=5,
    train_micro_batch=4,
    save_every_steps=10,
)


@contextmanager
def compiling(*, quickly: bool) -> Generator[None]:
    """Programs are not optimized, which takes half of the time, or as in a stage's own process; the bits differ."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quickly)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The tiny model after enough steps of `sft` to say one of two digits, each about every second time."""
    folder = tmp_path_factory.mktemp("trained")
    dataset = stored_rows(folder, coin_rows(48, lambda n: str(n // 3 % 2)))
    trial = StageTrial(folder, "sft", CONFIG, {"model": external(TINY), "dataset": dataset})
    # Whoever asks first: others compare its bytes with those of other processes.
    with compiling(quickly=False):
        context = trial.run()
    outputs = {name: context.output_dir(name) for name in ("checkpoint", "report")}
    return Trained(folder, trial, outputs, stored(folder, outputs["checkpoint"]))


@pytest.fixture(scope="module")
def quickly_compiled() -> Iterator[None]:
    """For tests of values that run each program once."""
    with compiling(quickly=True):
        yield
