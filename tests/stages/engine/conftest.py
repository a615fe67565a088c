"""The tiny model with an adapter that changes what it says."""

import jax
import pytest
from stage_trial import TINY, StageTrial, external

from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import Weights
from stages.engine.models.opened import open_model
from stages.engine.models.source import LoadedModel, load_trained_model
from stages.engine.training.config import AdamWConfig
from stages.sft.config import SftConfig

LORA = LoraConfig(rank=3, alpha=6)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """The tiny model under a fresh adapter."""
    config = SftConfig(
        model=TrainedModelConfig(lora=LORA),
        optimizer=AdamWConfig(learning_rate=1e-2),
        num_steps=1,
        batch_size=1,
        seed=1,
    )
    trial = StageTrial(tmp_path_factory.mktemp("tiny"), "sft", config, {"model": external(TINY)})
    return load_trained_model(open_model(trial.context()), TrainedModelConfig(lora=LORA), seed=1)


@pytest.fixture(scope="session")
def moved(tiny: LoadedModel) -> Weights:
    """Weights of the tiny model's adapter as after training: no part is zero."""
    keys = jax.random.split(jax.random.key(5), len(tiny.trained))
    return {
        name: value + 0.05 * jax.random.normal(key, value.shape)
        for key, (name, value) in zip(keys, tiny.trained.items(), strict=True)
    }
