"""Adapters over a mixture's experts, and experts in few bits."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from fresh_adapter import attach_lora
from jaxtyping import Array, Float

from stages.contract import Quantization
from stages.engine.data.batching import Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.architecture import Architecture, Experts, RopeSettings
from stages.engine.models.config import LoraConfig
from stages.engine.models.dropout import Dropout, dropout_mask, expert_keys
from stages.engine.models.experts import ExpertMatrices
from stages.engine.models.heads import score_targets
from stages.engine.models.lora import Frozen, Weights, bind, check_targets, split
from stages.engine.models.merge import merged_weights
from stages.engine.models.moe import Dropped, Kernels, Routing, mix, route
from stages.engine.models.quantise import QVALUE, SCALE, converters, dequantise
from stages.engine.models.transformer import Cells, Decoder
from stages.errors import UserError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

EXPERTS = Experts(count=5, per_token=2, hidden=12, normalized=True)
ARCH = Architecture(
    num_layers=2,
    width=8,
    hidden=8,
    num_heads=2,
    num_kv_heads=1,
    head_size=4,
    vocab_size=31,
    rope=RopeSettings(1e4),
    norm_epsilon=1e-5,
    tied_embeddings=True,
    max_positions=16,
    experts=EXPERTS,
)
ON_EXPERTS = LoraConfig(rank=3, alpha=6, targets=("mlp",))
ALL = LoraConfig(rank=3, alpha=6)
BATCH = pack_rows([PackedRow((), [Group((7, 8, 9, 10), [(11, 12, 13)])])], TargetShape(1, 1, 3), width=8)
HOW = [Quantization(kind=kind, tile_size=4) for kind in ("nf4", "int8", "int4")]
KINDS = pytest.mark.parametrize("how", HOW, ids=lambda how: how.kind)
PROJECTIONS = [f"blocks.mlp.{name}_proj.kernel" for name in ("gate", "up", "down")]
SCALE_OF_ADAPTERS = 0.7


def adapted(config: LoraConfig = ALL, how: Quantization | None = None) -> tuple[Frozen, Weights]:
    model = bare()
    attach_lora(model, config, seed=1, quantization=how)
    return split(model)


@cache
def drawn() -> tuple[nnx.GraphDef[Decoder], Cells]:
    return nnx.split(nnx.jit(lambda: Decoder(ARCH, rngs=nnx.Rngs(0)))())


def bare() -> Decoder:
    return nnx.merge(*drawn())


def moved(adapter: Weights) -> Weights:
    """As after training: no part is zero."""
    keys = jax.random.split(jax.random.key(5), len(adapter))
    return {
        name: value + 0.3 * jax.random.normal(key, value.shape)
        for key, (name, value) in zip(keys, adapter.items(), strict=True)
    }


def scored(frozen: Frozen, weights: Weights) -> Float[Array, "B R"]:
    def score(weights: Weights, base: Cells) -> Float[Array, "B R"]:
        return score_targets(bind(frozen.graph, weights, base), BATCH)

    return jax.jit(score)(weights, frozen.base)


def random_kernels(with_adapters: bool = True) -> Kernels:
    def draw(seed: int, *shape: int) -> Array:
        return jax.random.normal(jax.random.key(seed), (EXPERTS.count, *shape)) * 0.4

    sizes = [(8, 12), (8, 12), (12, 8)]
    adapters = [(draw(10 + at, i, 3), draw(20 + at, 3, o)) if with_adapters else () for at, (i, o) in enumerate(sizes)]
    return Kernels(*(ExpertMatrices(draw(at, *size), *adapters[at]) for at, size in enumerate(sizes)))


def by_all_experts(x: Array, routing: Routing, kernels: Kernels) -> Array:
    """Every expert's answer to every token, of which most count nothing."""

    def each(x_END: Array, layer: ExpertMatrices) -> Array:
        assert isinstance(layer.kernel, jax.Array)
        assert layer.a is not None
        assert layer.b is not None
        return jnp.einsum("end,edf->enf", x_END, layer.kernel + SCALE_OF_ADAPTERS * layer.a @ layer.b)

    x_END = jnp.broadcast_to(x, (EXPERTS.count, *x.shape))
    out = each(jax.nn.silu(each(x_END, kernels.gate)) * each(x_END, kernels.up), kernels.down)
    share = jnp.sum(jax.nn.one_hot(routing.experts, EXPERTS.count) * routing.weights[..., None], axis=1)
    return jnp.einsum("enf,ne->nf", out, share)


def test_values_and_gradients_are_those_of_every_expert_computed_densely() -> None:
    x, kernels = jax.random.normal(jax.random.key(1), (7, 8)), random_kernels()
    routing = route(jax.random.normal(jax.random.key(2), (7, EXPERTS.count)), EXPERTS)

    def total(run: Callable[[Array, Kernels], Array]) -> Callable[[Array, Kernels], Array]:
        return lambda x, kernels: jnp.sum(jnp.sin(run(x, kernels)))

    found, expected = (
        jax.jit(jax.value_and_grad(total(run), (0, 1)))(x, kernels)
        for run in (
            lambda x, kernels: mix(x, routing, kernels, "silu", SCALE_OF_ADAPTERS),
            lambda x, kernels: by_all_experts(x, routing, kernels),
        )
    )
    assert all(part.any() for part in jax.tree.leaves(expected[1][1]))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5), found, expected)


def test_default_targets_adapt_every_expert_and_only_adapters_are_trained() -> None:
    frozen, adapter = adapted()
    assert {name: value.shape for name, value in adapter.items() if ".mlp." in name} == {
        "blocks.mlp.gate_proj.kernel_lora_a": (2, 5, 8, 3),
        "blocks.mlp.gate_proj.kernel_lora_b": (2, 5, 3, 12),
        "blocks.mlp.up_proj.kernel_lora_a": (2, 5, 8, 3),
        "blocks.mlp.up_proj.kernel_lora_b": (2, 5, 3, 12),
        "blocks.mlp.down_proj.kernel_lora_a": (2, 5, 12, 3),
        "blocks.mlp.down_proj.kernel_lora_b": (2, 5, 3, 8),
    }
    assert len(adapter) == 2 * 7
    assert len(jax.tree.leaves(frozen.base)) == len(jax.tree.leaves(split(bare())[0].base))


def test_the_router_may_be_adapted_with_the_experts_and_a_dense_model_has_none() -> None:
    _, adapter = adapted(LoraConfig(rank=2, alpha=2, targets=("router", "up_proj")))
    assert {name.split(".")[2] for name in adapter} == {"router", "up_proj"}
    with pytest.raises(UserError, match=r"targets: router are no linear layers .* there are q_proj, .*, down_proj$"):
        check_targets(replace(ARCH, experts=None), LoraConfig(rank=1, alpha=1, targets=("router",)))


def test_a_fresh_adapter_leaves_every_bit_alone_and_each_expert_has_its_own() -> None:
    frozen, adapter = adapted()
    np.testing.assert_array_equal(scored(frozen, adapter), scored(*split(bare())))
    first = np.asarray(adapter["blocks.mlp.up_proj.kernel_lora_a"])
    bound = (6 / 8) ** 0.5
    assert 0.9 * bound < np.abs(first).max() <= bound
    assert len(np.unique(first)) == first.size


def test_the_merged_model_scores_as_base_and_adapter_do() -> None:
    lora = ALL.model_copy(update={"scaling": "rank_stabilized"})
    frozen, fresh = adapted(lora)
    adapter = moved(fresh)
    whole, plain = split(bare(), nnx.Param)
    merged = dict(merged_weights(frozen, adapter, lora))
    assert {name for name in plain if not np.array_equal(merged[name], plain[name])} == {
        name.rpartition("_lora_")[0] for name in adapter
    }
    np.testing.assert_allclose(scored(whole, merged), scored(frozen, adapter), atol=1e-5)
    assert np.abs(scored(frozen, adapter) - scored(frozen, fresh)).max() > 0.1


@KINDS
def test_experts_in_few_bits_compute_as_the_weights_that_they_stand_for(how: Quantization) -> None:
    frozen, fresh = adapted(ALL, how)
    adapter = moved(fresh)
    whole, plain = split(bare(), nnx.Param)
    merged = dict(merged_weights(frozen, adapter, ALL, how))
    np.testing.assert_allclose(scored(whole, merged), scored(frozen, adapter), atol=1e-5)
    np.testing.assert_array_equal(scored(frozen, adapter), scored(frozen, adapter))
    stored = {".".join(map(str, path)): leaf.get_value() for path, leaf in frozen.base.flat_state()}
    assert "blocks.mlp.router.kernel" in stored
    for name in PROJECTIONS:
        parts = {part: stored[f"{name}.{part}"] for part in (QVALUE, SCALE)}
        assert parts[QVALUE].dtype == {"nf4": jnp.uint4, "int8": jnp.int8, "int4": jnp.int4}[how.kind]
        lost = np.linalg.norm(dequantise(parts, how) - plain[name]) / np.linalg.norm(plain[name])
        assert 0 < lost < (0.005 if how.kind == "int8" else 0.09)


def test_each_expert_is_stored_in_few_bits_by_itself() -> None:
    for name in PROJECTIONS:
        convert = converters(ARCH, HOW[0])[name]
        kernel = split(bare(), nnx.Param)[1][name]
        whole = convert(kernel)
        assert all(np.array_equal(part[1, 3], convert(kernel[1, 3])[at]) for at, part in whole.items())


def test_no_expert_is_kept_in_full_from_forward_to_backward_pass() -> None:
    def program(how: Quantization | None) -> str:
        frozen, adapter = adapted(ON_EXPERTS, how)

        def total(adapter: Weights, base: Cells) -> Float[Array, ""]:
            return score_targets(bind(frozen.graph, adapter, base), BATCH).sum()

        return str(jax.make_jaxpr(jax.grad(total))(adapter, frozen.base))

    every_layers_down_proj = "f32[2,5,12,8]"
    assert every_layers_down_proj in program(None)
    assert every_layers_down_proj not in program(HOW[0])


def words(num_tokens: int) -> Array:
    return jax.random.key_data(jax.random.split(jax.random.key(3, impl="threefry2x32"), num_tokens))


def test_an_adapter_of_an_expert_drops_by_token_and_expert_whatever_else_is_in_the_batch() -> None:
    x, kernels = jax.random.normal(jax.random.key(1), (6, 8)), random_kernels()
    routing = route(jax.random.normal(jax.random.key(2), (6, EXPERTS.count)), EXPERTS)

    @jax.jit
    def run(rows: Array) -> Array:
        chosen = Routing(routing.experts[rows], routing.weights[rows])
        dropped = Dropped(expert_keys(words(6)[rows], chosen.experts), 0.5, EXPERTS.hidden)
        return mix(x[rows], chosen, kernels, "silu", SCALE_OF_ADAPTERS, dropped)

    rows = jnp.array([4, 0, 5])
    np.testing.assert_array_equal(run(rows), run(jnp.arange(6))[rows])
    keys = expert_keys(words(1), jnp.arange(EXPERTS.count)[None])[0]
    assert len(np.unique(jax.jit(partial(dropout_mask, size=64, rate=0.5, module="mlp/up_proj"))(keys), axis=0)) == 5


def test_dropped_inputs_count_nothing_and_the_rest_more_so_that_the_mean_stays() -> None:
    """The first two matrices are plain; the inner values are then known, and the last layer is linear."""
    kernels = random_kernels()
    plain = kernels._replace(gate=ExpertMatrices(kernels.gate.kernel), up=ExpertMatrices(kernels.up.kernel))
    x = jnp.broadcast_to(jax.random.normal(jax.random.key(1), (1, 8)), (4000, 8))
    routing = Routing(jnp.broadcast_to(jnp.array([1, 3]), (4000, 2)), jnp.full((4000, 2), 0.5))

    @jax.jit
    def run(keys: Array | None) -> Array:
        return mix(x, routing, plain, "silu", SCALE_OF_ADAPTERS, None if keys is None else Dropped(keys, 0.25, 12))

    found, expected = np.asarray(run(expert_keys(words(4000), routing.experts))), np.asarray(run(None))[0]
    assert (found.std(axis=0) > 0.01).all()
    assert (np.abs(found.mean(axis=0) - expected) < 4 * found.std(axis=0) / 4000**0.5).all()


def test_a_training_step_drops_in_every_expert() -> None:
    frozen, fresh = adapted(ON_EXPERTS)
    keys = jax.random.split(jax.random.key(4, impl="threefry2x32"), BATCH.tokens.shape)

    def score(weights: Weights, base: Cells, rate: float) -> Float[Array, "B R"]:
        dropout = Dropout(keys, rate) if rate else None
        return score_targets(bind(frozen.graph, weights, base, dropout), BATCH)

    run = jax.jit(score, static_argnums=2)
    adapter = moved(fresh)
    assert np.abs(run(adapter, frozen.base, 0.5) - run(adapter, frozen.base, 0.0)).max() > 0.01
    # With next to all inputs dropped an adapter says nothing; the base is never touched.
    np.testing.assert_allclose(run(adapter, frozen.base, 1 - 2**-20), run(fresh, frozen.base, 0.0), rtol=1e-4)
