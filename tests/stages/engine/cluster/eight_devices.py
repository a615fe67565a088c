"""Models divided over eight devices in every way; run by `test_on_eight_devices.py`."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from fresh_adapter import attach_lora
from stage_trial import TINY, StageTrial, external

from stages.contract import Quantization, StageConfigBase
from stages.engine.cluster.config import MeshConfig
from stages.engine.cluster.mesh import ALONE, Cluster, all_devices
from stages.engine.cluster.placement import divide_rows, replicate
from stages.engine.data.batching import Batch, Group
from stages.engine.data.layout import Layout
from stages.engine.models.architecture import Architecture, Experts, RopeSettings, Window
from stages.engine.models.axes import base_of_this_process, make_placement, place_weights
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.dropout import NumberedBatch, TokenNumbers
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Weights, split
from stages.engine.models.opened import open_model
from stages.engine.models.paths import dotted
from stages.engine.models.source import load_trained_model
from stages.engine.models.transformer import Cells, Decoder
from stages.engine.training.config import AdamWConfig
from stages.engine.training.optimizer import make_rule
from stages.engine.training.state import start_state
from stages.engine.training.step import Applied, Gradient, Loss, make_gradient, make_update
from stages.errors import UserError
from stages.sft.loss import make_sft_loss

LLAMA = Architecture(
    num_layers=2,
    width=32,
    hidden=64,
    num_heads=4,
    num_kv_heads=2,
    head_size=8,
    vocab_size=128,
    rope=RopeSettings(1e4),
    norm_epsilon=1e-5,
    tied_embeddings=False,
    max_positions=128,
    qkv_bias=True,
)
GEMMA = replace(
    LLAMA,
    qkv_bias=False,
    tied_embeddings=True,
    activation="gelu_tanh",
    qk_norm=True,
    norm_offset=1.0,
    post_norms=True,
    embedding_scale=32**0.5,
    attention_soft_cap=50.0,
    final_soft_cap=30.0,
    window=Window(4, 2, RopeSettings(1e3)),
)
MIXTURE = replace(
    LLAMA, qkv_bias=False, qk_norm=True, experts=Experts(count=8, per_token=2, hidden=16, normalized=True)
)
MODELS = {"llama": LLAMA, "gemma": GEMMA, "mixture": MIXTURE}
MESHES = {
    "data": MeshConfig(),
    "fsdp": MeshConfig(data=1, fsdp=-1),
    "tensor": MeshConfig(tensor=2),
    "sequence": MeshConfig(sequence=4),
    "three axes": MeshConfig(data=1, fsdp=2, sequence=2, tensor=2),
    "expert": MeshConfig(data=1, fsdp=2, expert=4),
    "experts, tokens and heads": MeshConfig(data=1, expert=2, sequence=2, tensor=2),
}
FAST = {("llama", "three axes"), ("mixture", "expert")}
CASES = [
    pytest.param(model, mesh, id=f"{model}-{mesh}", marks=() if (model, mesh) in FAST else pytest.mark.slow)
    for model in MODELS
    for mesh in MESHES
    if "expert" not in mesh or model == "mixture"
]
EXAMPLES = [Group((1, 90, 91, 92, 50 + row), [(60, 61, 70 + row, 2)[: 1 + row % 4]]) for row in range(8)]
RULE = make_rule(AdamWConfig(learning_rate=1e-2, max_grad_norm=0.5, epsilon=1e-2), 10)
TRAINED = TrainedModelConfig(
    lora=LoraConfig(rank=2, alpha=2, targets=("attention",)), quantization=Quantization(kind="int8", tile_size=8)
)
NO_BASE = nnx.State({})
RTOL = 1e-5
"""Of the largest entry of an array: sums are rounded in another order."""


def graph_and_weights(arch: Architecture) -> tuple[nnx.GraphDef[Decoder], Weights]:
    """A random decoder all of whose weights are trained."""
    graph, state = nnx.split(Decoder(arch, rngs=nnx.Rngs(0)))
    return graph, {dotted(path): leaf.get_value() for path, leaf in state.flat_state()}


def bound(graph: nnx.GraphDef[Decoder], weights: Weights) -> Decoder:
    return nnx.merge(
        graph, nnx.from_flat_state([(tuple(name.split(".")), nnx.Param(weights[name])) for name in weights])
    )


def packed(cluster: Cluster) -> Batch:
    shares = cluster.num_row_shares
    return divide_rows(cluster, Layout(0, len(EXAMPLES) // shares, 1, 4, 16, shares).pack(EXAMPLES))


def numbered(cluster: Cluster) -> NumberedBatch:
    """With a group in each row, of which only the first token is everybody's."""
    batch = packed(cluster)
    owners = np.where(batch.positions < 1, 0, np.arange(1, len(EXAMPLES) + 1)[:, None]).astype(np.int32)
    numbers = TokenNumbers(np.full(len(owners), 3, np.int32), owners)
    return NumberedBatch(batch, divide_rows(cluster, numbers))


def step(arch: Architecture, cluster: Cluster) -> tuple[Gradient, Applied]:
    graph, weights = graph_and_weights(arch)

    def loss(weights: Weights, base: Cells, batch: Batch) -> Loss:
        logprobs = score_targets(bound(graph, weights), batch)
        nll = -jnp.sum(jnp.where(batch.target_mask, logprobs, 0.0))
        return Loss(nll, jnp.sum(batch.target_mask, dtype=jnp.float32), {})

    state = start_state(weights, RULE, 0, cluster)
    gradient = make_gradient(loss, cluster)(state.weights, NO_BASE, packed(cluster))
    return gradient, make_update(RULE, cluster)(state.weights, state.optimizer, gradient)


@cache
def on_one_device(model: str) -> tuple[Gradient, Applied]:
    return step(MODELS[model], ALONE)


def assert_close(found: Weights, expected: Weights) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=RTOL * np.abs(value).max(), rtol=0, err_msg=name)


@pytest.mark.parametrize(("model", "mesh"), CASES)
def test_loss_gradient_and_update_are_those_of_one_device(model: str, mesh: str) -> None:
    cluster = all_devices(MESHES[mesh])
    (expected, expected_update), (found, update) = on_one_device(model), step(MODELS[model], cluster)
    np.testing.assert_allclose(found.loss.total, expected.loss.total, rtol=RTOL)
    assert float(found.loss.denominator) == float(expected.loss.denominator)
    assert_close(found.weights, expected.weights)
    np.testing.assert_allclose(update.grad_norm, expected_update.grad_norm, rtol=RTOL)
    assert_close(update.weights, expected_update.weights)
    placement = make_placement(cluster)
    assert placement is not None
    for name, weight in update.weights.items():
        assert weight.sharding.is_equivalent_to(placement(name, weight.shape), weight.ndim), name
    shares = 1
    for moment in jax.tree.leaves(update.optimizer):
        shares = max(shares, moment.size // moment.addressable_shards[0].data.size)
    assert shares == 8


def placed(cluster: Cluster, base: Cells) -> Cells:
    placement = make_placement(cluster)
    assert placement is not None
    leaves = base.flat_state()
    where = [placement(dotted(path), leaf.get_value().shape) for path, leaf in leaves]
    moved = [leaf.replace(jax.device_put(leaf.get_value(), to)) for (_, leaf), to in zip(leaves, where, strict=True)]
    return nnx.from_flat_state([(path, leaf) for (path, _), leaf in zip(leaves, moved, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "mesh", "kind", "parts"),
    [
        ("llama", "three axes", "nf4", {4}),
        ("llama", "three axes", "int8", {4}),
        ("mixture", "experts, tokens and heads", "nf4", {2, 4}),
        ("mixture", "expert", "int8", {2, 8}),
    ],
)
def test_an_adapter_with_dropout_over_a_divided_base_in_few_bits_gets_the_gradient_of_one_device(
    model: str, mesh: str, kind: Literal["nf4", "int8"], parts: set[int]
) -> None:
    decoder, cluster = Decoder(MODELS[model], rngs=nnx.Rngs(0)), all_devices(MESHES[mesh])
    attach_lora(decoder, LoraConfig(rank=4, alpha=4), 3, Quantization(kind=kind, tile_size=8))
    frozen, fresh = split(decoder)
    adapter = {name: value + 0.03 for name, value in fresh.items()}
    loss, base = make_sft_loss(frozen.graph, dropout=0.3, seed=5), placed(cluster, frozen.base)
    expected = make_gradient(loss)(adapter, frozen.base, numbered(ALONE))
    found = make_gradient(loss, cluster)(place_weights(cluster, adapter), base, numbered(cluster))
    np.testing.assert_allclose(found.loss.total, expected.loss.total, rtol=RTOL)
    assert_close(found.weights, expected.weights)
    quantised = [leaf.get_value() for path, leaf in base.flat_state() if path[-1] == "qvalue"]
    assert {leaf.size // leaf.addressable_shards[0].data.size for leaf in quantised} == parts


@pytest.mark.parametrize(
    ("mesh", "parts"),
    [("data", 1), ("fsdp", 8), ("tensor", 2), ("sequence", 1), ("three axes", 4), ("expert", 2)],
)
def test_every_device_has_its_part_of_every_matrix(mesh: str, parts: int) -> None:
    weights = graph_and_weights(MIXTURE)[1]
    for name, weight in place_weights(all_devices(MESHES[mesh]), weights).items():
        expected = 1 if name.endswith("scale") else parts
        if mesh == "expert" and weight.ndim == 4:
            expected = 8
        if mesh in ("tensor", "three axes") and "router" in name:
            expected = parts // 2
        assert {shard.data.nbytes for shard in weight.addressable_shards} == {weight.nbytes // expected}, name


@pytest.mark.parametrize(("mesh", "exchanged"), [("data", set()), ("fsdp", {"all-gather"}), ("tensor", {"all-reduce"})])
def test_devices_exchange_weights_along_fsdp_and_sums_along_tensor(mesh: str, exchanged: set[str]) -> None:
    cluster = all_devices(MESHES[mesh])
    graph, weights = graph_and_weights(LLAMA)
    assert cluster.mesh is not None
    with jax.set_mesh(cluster.mesh):
        score = jax.jit(lambda weights, batch: score_targets(bound(graph, weights), batch))
        program = score.lower(place_weights(cluster, weights), packed(cluster)).compile().as_text()
    assert program is not None
    assert set(re.findall(r"(all-gather|all-reduce|all-to-all)\(", program)) == exchanged


def test_a_base_that_is_whole_everywhere_is_sampled_from_on_one_device() -> None:
    cluster = all_devices()
    base = replicate(cluster, nnx.split(Decoder(LLAMA, rngs=nnx.Rngs(0)))[1])
    assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(base_of_this_process(cluster, base)))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            MeshConfig(tensor=3),
            "mesh: data -1, fsdp 1, expert 1, sequence 1, tensor 3: 3 does not divide the 8 devices",
        ),
        (MeshConfig(data=1, fsdp=2), "these are 2 devices, but there are 8; -1 stands for what is left"),
        (MeshConfig(data=16), "these are 16 devices, but there are 8"),
    ],
)
def test_sizes_that_do_not_make_up_all_devices_are_refused(config: MeshConfig, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        all_devices(config)


@pytest.mark.parametrize(
    ("tensor", "messages"),
    [
        (
            2,
            [
                "embed.embedding: its dimension `vocab` of 259 does not divide evenly by mesh.tensor = 2",
                "lm_head.kernel",
            ],
        ),
        (4, ["its 2 key and value heads do not divide evenly by mesh.tensor = 4", "embed.embedding", "lm_head.kernel"]),
        (8, ["its 4 query heads", "its 2 key and value heads"]),
    ],
)
def test_a_model_that_cannot_be_divided_so_is_refused_as_it_is_loaded(
    tmp_path: Path, tensor: int, messages: list[str]
) -> None:
    trial = StageTrial(tmp_path, "sft", StageConfigBase(), {"model": external(TINY)})
    with pytest.raises(UserError, match=".*; ".join(map(re.escape, messages))):
        load_trained_model(open_model(trial.context()), TRAINED, 0, all_devices(MeshConfig(tensor=tensor)))


def test_tiles_that_cannot_be_divided_so_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    trial = StageTrial(tmp_path, "sft", StageConfigBase(), {"model": external(TINY)})
    config = TRAINED.model_copy(update={"quantization": Quantization(kind="int8", tile_size=32)})
    with pytest.raises(UserError, match=r"q_proj.kernel in tiles of 32: .* `embed` of 2 .* mesh.fsdp = 8; .*up_proj"):
        load_trained_model(open_model(trial.context()), config, 0, all_devices(MESHES["fsdp"]))


def test_a_model_is_loaded_straight_to_the_devices_that_share_it(tmp_path: Path) -> None:
    trial = StageTrial(tmp_path, "sft", StageConfigBase(), {"model": external(TINY)})
    cluster = all_devices(MESHES["fsdp"])
    base = load_trained_model(open_model(trial.context()), TRAINED, 0, cluster).frozen.base
    for path, leaf in base.flat_state():
        value = leaf.get_value()
        parts = 1 if "norm" in dotted(path) else 8
        assert {shard.data.size for shard in value.addressable_shards} == {value.size // parts}, path
    found = base_of_this_process(cluster, base)
    assert all(len(leaf.devices()) == 8 for leaf in jax.tree.leaves(found))
