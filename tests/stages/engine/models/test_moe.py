"""The mixture of experts against a loop over tokens and experts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jaxtyping import Array

from stages.engine.models.architecture import Architecture, Experts, RopeSettings
from stages.engine.models.experts import ExpertMatrices
from stages.engine.models.moe import Kernels, MixtureOfExperts, Routing, mix, route

pytestmark = pytest.mark.usefixtures("quickly_compiled")

EXPERTS = Experts(count=5, per_token=2, hidden=6, normalized=True)
ARCH = Architecture(
    num_layers=1,
    width=8,
    hidden=8,
    num_heads=2,
    num_kv_heads=1,
    head_size=4,
    vocab_size=11,
    rope=RopeSettings(1e4),
    norm_epsilon=1e-5,
    tied_embeddings=True,
    max_positions=16,
    experts=EXPERTS,
)
X = np.asarray(jax.random.normal(jax.random.key(0), (3, 4, 8)))


@pytest.fixture(scope="module")
def mixture() -> MixtureOfExperts:
    return MixtureOfExperts(ARCH, EXPERTS, rngs=nnx.Rngs(1))


def by_loop(mixture: MixtureOfExperts, x: np.ndarray) -> np.ndarray:
    gate, up, down = (np.asarray(each.kernel[...]) for each in (mixture.gate_proj, mixture.up_proj, mixture.down_proj))
    scores = np.exp(x @ np.asarray(mixture.router.kernel[...]))
    scores /= scores.sum()
    best = np.argsort(-scores)[: EXPERTS.per_token]
    out = np.zeros_like(x)
    for expert in best:
        inner = x @ gate[expert]
        out += scores[expert] / scores[best].sum() * (inner / (1 + np.exp(-inner)) * (x @ up[expert])) @ down[expert]
    return out


def test_a_token_gets_the_weighted_sum_of_its_best_experts(mixture: MixtureOfExperts) -> None:
    expected = np.array([[by_loop(mixture, token) for token in row] for row in X])
    np.testing.assert_allclose(mixture(jnp.asarray(X)), expected, atol=1e-5)


def test_what_a_device_leaves_in_rows_of_no_expert_reaches_neither_sum_nor_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = jax.lax.ragged_dot

    @jax.custom_vjp
    def careless(x: Array, kernel: Array, sizes: Array) -> Array:
        rows = jnp.arange(len(x)) < jnp.sum(sizes)
        return jnp.where(rows[:, None], plain(x, kernel, sizes), jnp.nan)

    def forward(x: Array, kernel: Array, sizes: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        return careless(x, kernel, sizes), (x, kernel, sizes)

    def backward(kept: tuple[Array, Array, Array], out: Array) -> tuple[Array, Array, None]:
        x, kernel, sizes = kept
        rows = (jnp.arange(len(x)) < jnp.sum(sizes))[:, None]
        to_x, to_kernel = jax.vjp(lambda x, kernel: plain(x, kernel, sizes), jnp.where(rows, x, 0), kernel)[1](
            jnp.where(rows, out, 0)
        )
        return jnp.where(rows, to_x, jnp.nan), to_kernel, None

    careless.defvjp(forward, backward)
    arrays = [jax.random.normal(key, (2, 4, 4)) for key in jax.random.split(jax.random.key(0), 9)]
    kernels = Kernels(*(ExpertMatrices(*arrays[at : at + 3]) for at in (0, 3, 6)))
    routing = Routing(jnp.array([[0, 2], [2, 2], [2, 1]]), jnp.full((3, 2), 0.5))

    def total(x: Array, kernels: Kernels) -> Array:
        return jnp.sum(jnp.sin(mix(x, routing, kernels, "silu", 0.5)))

    x = jax.random.normal(jax.random.key(9), (3, 4))
    expected = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(x, kernels)
    monkeypatch.setattr(jax.lax, "ragged_dot", careless)
    found = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(x, kernels)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6), found, expected)


def test_weights_may_be_those_of_all_experts() -> None:
    logits = jnp.log(jnp.array([[0.5, 0.1, 0.3, 0.06, 0.04]]))
    for normalized, expected in ((True, [0.625, 0.375]), (False, [0.5, 0.3])):
        chosen = route(logits, replace(EXPERTS, normalized=normalized))
        assert chosen.experts.tolist() == [[0, 2]]
        np.testing.assert_allclose(chosen.weights, [expected], rtol=1e-5)


def test_a_token_gets_the_same_bits_in_any_order_of_the_batch(mixture: MixtureOfExperts) -> None:
    run = jax.jit(mixture.__call__)
    np.testing.assert_array_equal(run(jnp.asarray(X[::-1].copy())), np.asarray(run(jnp.asarray(X)))[::-1])


def test_gradients_reach_the_router_and_the_chosen_experts_only(mixture: MixtureOfExperts) -> None:
    graph, weights = nnx.split(mixture)

    def total(weights: nnx.State, x: Array) -> Array:
        return jnp.sum(nnx.merge(graph, weights)(x) ** 2)

    one = jnp.asarray(X[:1, :1])
    gradient = jax.grad(total)(weights, one)
    chosen = set(np.asarray(route(mixture.router(one[0]), EXPERTS).experts)[0].tolist())
    moved = np.abs(np.asarray(gradient["up_proj"]["kernel"].get_value())).sum(axis=(1, 2)) > 0
    assert set(np.flatnonzero(moved).tolist()) == chosen
    assert np.abs(np.asarray(gradient["router"]["kernel"].get_value())).sum() > 0
