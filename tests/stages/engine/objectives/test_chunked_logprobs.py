"""Log-probabilities without all logits at once: values, gradients, and what they cost."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.objectives import chunked_logprobs as chunked
from stages.engine.objectives.chunked_logprobs import chunked_logprobs
from stages.engine.objectives.logprobs import target_logprobs

B, R, D, V = 3, 7, 8, 33
TOLERANCE = 2e-6
Gradients = tuple[Float[Array, "B R D"], Float[Array, "..."]]


@pytest.fixture(autouse=True)
def two_tokens_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "CHUNK_ENTRIES", 2 * B * V)


def drawn(key: int, *shape: int) -> Float[Array, "..."]:
    return jax.random.normal(jax.random.key(key), shape)


HIDDEN, MATRIX, COTANGENT = 3 * drawn(0, B, R, D), drawn(1, V, D), drawn(2, B, R)
TARGETS = jax.random.randint(jax.random.key(3), (B, R), 0, V)


def plain(hidden: Array, matrix: Array, temperature: float = 1.0, soft_cap: float | None = None) -> Array:
    logits = hidden @ matrix.T
    if soft_cap is not None:
        logits = soft_cap * jnp.tanh(logits / soft_cap)
    return target_logprobs(logits, TARGETS, temperature)


def gradients(function: Callable[[Array, Array], Array], hidden: Array, matrix: Array) -> Gradients:
    return jax.jit(jax.grad(lambda hidden, matrix: (COTANGENT * function(hidden, matrix)).sum(), (0, 1)))(
        hidden, matrix
    )


def assert_close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * float(jnp.abs(expected).max()))


@pytest.mark.parametrize(
    ("vocab_axis", "temperature", "soft_cap"), [(0, 1.0, None), (1, 0.7, None), (0, 1.3, 5.0), (1, 1.0, 5.0)]
)
def test_value_and_gradient_are_those_of_the_formula(
    vocab_axis: int, temperature: float, soft_cap: float | None
) -> None:
    def found(hidden: Array, matrix: Array) -> Array:
        given = matrix.T if vocab_axis else matrix
        return chunked_logprobs(
            hidden, given, TARGETS, vocab_axis=vocab_axis, temperature=temperature, soft_cap=soft_cap
        )

    def expected(hidden: Array, matrix: Array) -> Array:
        return plain(hidden, matrix, temperature, soft_cap)

    assert_close(jax.jit(found)(HIDDEN, MATRIX), expected(HIDDEN, MATRIX))
    for one, other in zip(gradients(found, HIDDEN, MATRIX), gradients(expected, HIDDEN, MATRIX), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("tokens", [1, 3, 5, 7, 100])
def test_the_size_of_a_chunk_changes_nothing(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "CHUNK_ENTRIES", tokens * B * V)
    assert_close(chunked_logprobs(HIDDEN, MATRIX, TARGETS), plain(HIDDEN, MATRIX))
    found = gradients(lambda hidden, matrix: chunked_logprobs(hidden, matrix, TARGETS), HIDDEN, MATRIX)
    for one, other in zip(found, gradients(plain, HIDDEN, MATRIX), strict=True):
        assert_close(one, other)


def test_a_token_that_no_loss_reads_gives_no_gradient() -> None:
    read = jnp.arange(R) != 3

    def total(hidden: Array, matrix: Array) -> Array:
        return jnp.where(read, chunked_logprobs(hidden, matrix, TARGETS), 0.0)

    by_hidden, by_matrix = gradients(total, HIDDEN, MATRIX)
    assert not np.asarray(by_hidden[:, 3]).any()
    assert np.asarray(by_hidden[:, read]).all()
    _, elsewhere = gradients(total, HIDDEN.at[:, 3].set(100.0), MATRIX)
    np.testing.assert_array_equal(elsewhere, by_matrix)


def test_short_types_are_summed_in_float32_and_gradients_have_the_types_of_their_arrays() -> None:
    hidden, matrix = HIDDEN.astype(jnp.bfloat16), MATRIX.astype(jnp.bfloat16)
    rounded = hidden.astype(jnp.float32), matrix.astype(jnp.float32)
    found = chunked_logprobs(hidden, matrix, TARGETS)
    assert found.dtype == jnp.float32
    assert_close(found, plain(*rounded))
    short = gradients(lambda hidden, matrix: chunked_logprobs(hidden, matrix, TARGETS), hidden, matrix)
    for one, other in zip(short, gradients(plain, *rounded), strict=True):
        assert one.dtype == jnp.bfloat16
        np.testing.assert_allclose(one.astype(jnp.float32), other, atol=0.01 * float(jnp.abs(other).max()))


def test_rows_in_another_order_give_the_same_bits() -> None:
    order = np.array([2, 0, 1])

    @jax.jit
    def run(hidden: Array, targets: Array) -> tuple[Array, Array]:
        found, back = jax.vjp(lambda hidden: chunked_logprobs(hidden, MATRIX, targets), hidden)
        return found, back(jnp.ones_like(found))[0]

    for one, other in zip(run(HIDDEN[order], TARGETS[order]), run(HIDDEN, TARGETS), strict=True):
        np.testing.assert_array_equal(one, other[order])


def test_a_frozen_matrix_costs_no_second_pass_over_the_vocabulary() -> None:
    def loops(argnums: tuple[int, ...]) -> int:
        gradient = jax.grad(lambda hidden, matrix: chunked_logprobs(hidden, matrix, TARGETS).sum(), argnums)
        program = jax.jit(gradient).lower(HIDDEN, MATRIX).compile().as_text()
        assert program is not None
        return program.count(" while(")

    assert (loops((0,)), loops((0, 1))) == (1, 2)


@pytest.mark.parametrize("argnums", [(0,), (0, 1)], ids=["frozen", "trained"])
def test_a_large_vocabulary_takes_an_eighth_of_the_memory_of_all_logits(
    argnums: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 1024, 256), (131072, 256))]
    targets = jax.ShapeDtypeStruct((4, 1024), jnp.int32)

    def temporary(function: Callable[[Array, Array, Array], Array]) -> int:
        gradient = jax.grad(lambda hidden, matrix, targets: function(hidden, matrix, targets).sum(), argnums)
        analysis = jax.jit(gradient).lower(*shapes, targets).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    whole = temporary(lambda hidden, matrix, targets: target_logprobs(hidden @ matrix.T, targets))
    assert whole >= 4096 * 131072 * 4
    assert temporary(chunked_logprobs) <= whole / 8
