"""Layers that compute in bfloat16 over weights in float32."""

from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import Array, Float
from stage_trial import TINY, StageTrial, coin_rows, external, stored_rows

from stages.contract import Quantization
from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.config import LoraConfig, Precision, TrainedModelConfig
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Weights, bind
from stages.engine.models.opened import open_model
from stages.engine.models.source import LoadedModel, load_trained_model
from stages.engine.training.config import AdamWConfig
from stages.sft.config import SftConfig

pytestmark = pytest.mark.usefixtures("quickly_compiled")

LORA = LoraConfig(rank=4, alpha=8)
ROWS = [PackedRow((), [Group([1, 30 + n, 31, 32], [[40, 41 + n, 2]])]) for n in range(3)]
BATCH = pack_rows(ROWS, TargetShape(1, 1, 3), 16)


def load(folder: Path, precision: Precision, lora: LoraConfig | None, how: Quantization | None = None) -> LoadedModel:
    trial = StageTrial(folder, "sft", SftConfig.model_construct(), {"model": external(TINY)})
    config = TrainedModelConfig(lora=lora, precision=precision, quantization=how)
    return load_trained_model(open_model(trial.context()), config, seed=1)


def loss(model: LoadedModel, weights: Weights, batch: Batch = BATCH) -> Float[Array, ""]:
    logprobs = score_targets(bind(model.frozen.graph, weights, model.frozen.base), batch)
    return -jnp.sum(jnp.where(batch.target_mask, logprobs, 0.0))


def products(jaxpr: str) -> Counter[str]:
    """Types of the matrix products that a program makes."""
    return Counter(line.split(":")[1].split("[")[0] for line in jaxpr.splitlines() if "= dot_general[" in line)


@pytest.mark.parametrize("lora", [LORA, None], ids=["adapter", "all weights"])
def test_loss_and_gradient_in_short_are_near_those_in_full_and_gradients_are_full(
    tmp_path: Path, lora: LoraConfig | None
) -> None:
    full, short = (load(tmp_path, precision, lora) for precision in ("float32", "bfloat16"))
    start = {name: value + 0.05 for name, value in full.trained.items()} if lora else full.trained
    (expected, by_full), (found, by_short) = (
        jax.jit(jax.value_and_grad(lambda weights, model=model: loss(model, weights)))(start) for model in (full, short)
    )
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    assert {value.dtype for value in short.trained.values()} == {jnp.dtype(jnp.float32)}
    for name, gradient in by_short.items():
        assert gradient.dtype == jnp.float32
        scale = float(jnp.abs(by_full[name]).max())
        np.testing.assert_allclose(gradient, by_full[name], atol=0.1 * scale, err_msg=name)


@pytest.mark.parametrize(
    ("lora", "how"),
    [(LORA, None), (None, None), (LORA, Quantization(kind="nf4", tile_size=32))],
    ids=["adapter", "all weights", "few bits"],
)
def test_layers_multiply_in_short_and_a_base_is_kept_so(
    tmp_path: Path, lora: LoraConfig | None, how: Quantization | None
) -> None:
    model = load(tmp_path, "bfloat16", lora, how)
    found = products(str(jax.make_jaxpr(lambda weights: loss(model, weights))(model.trained)))
    # Sums in full: queries by keys, and logits.
    assert found.pop("f32") == 2
    assert set(found) == {"bf16"}
    floats = [
        leaf for leaf in jax.tree.leaves(nnx.pure(model.frozen.base)) if leaf.dtype in (jnp.float32, jnp.bfloat16)
    ]
    assert all(leaf.dtype == jnp.bfloat16 for leaf in floats)


@pytest.mark.slow
def test_a_stage_trains_in_short_and_writes_in_full(tmp_path: Path) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        config = SftConfig(
            model=TrainedModelConfig(lora=LORA, precision=precision),
            optimizer=AdamWConfig(learning_rate=1e-2),
            num_steps=4,
            batch_size=4,
            seed=5,
        )
        dataset = stored_rows(tmp_path, coin_rows(12, lambda n: str(n % 2)))
        trial = StageTrial(tmp_path, "sft", config, {"model": external(TINY), "dataset": dataset})
        trial.run()
        losses[precision] = [row.numbers["loss/nll"] for row in trial.metrics()]
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=3e-2)
    assert losses["bfloat16"] != losses["float32"]
