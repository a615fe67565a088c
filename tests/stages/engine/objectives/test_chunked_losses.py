"""What losses that need all logits cost; their values are tested by the losses themselves."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from stages.engine.objectives import chunked_losses as chunked
from stages.engine.objectives.chunked_losses import chunked_losses
from stages.engine.objectives.distillation import distillation_losses, forward_kl
from stages.engine.objectives.projection import Head, Outputs


def nll(logits: Array, targets: Array, _: None) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], axis=-1)[:, 0]


def test_a_frozen_matrix_costs_no_second_pass_over_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "CHUNK_ENTRIES", 2 * 3 * 33)
    hidden, matrix, targets = jnp.ones((3, 7, 8)), jnp.ones((33, 8)), jnp.zeros((3, 7), jnp.int32)

    def loops(argnums: tuple[int, ...]) -> int:
        def total(hidden: Array, matrix: Array) -> Array:
            return chunked_losses(nll, Outputs(hidden, matrix, Head()), targets, None).sum()

        program = jax.jit(jax.grad(total, argnums)).lower(hidden, matrix).compile().as_text()
        assert program is not None
        return program.count(" while(")

    assert (loops((0,)), loops((0, 1))) == (1, 2)


def test_gradients_have_the_types_of_their_arrays_and_losses_are_float32() -> None:
    hidden, matrix = (
        jax.random.normal(jax.random.key(key), shape, jnp.bfloat16) for key, shape in ((0, (1, 3, 8)), (1, (33, 8)))
    )
    targets = jnp.array([[1, 2, 3]])

    def of(hidden: Array, matrix: Array) -> Array:
        return chunked_losses(nll, Outputs(hidden, matrix, Head()), targets, None)

    def plain(hidden: Array, matrix: Array) -> Array:
        return nll((hidden @ matrix.T)[0], targets[0], None)[None]

    assert jax.eval_shape(of, hidden, matrix).dtype == jnp.float32
    rounded = hidden.astype(jnp.float32), matrix.astype(jnp.float32)
    found, expected = (
        jax.jit(jax.grad(lambda *given, function=function: function(*given).sum(), (0, 1)))(*given)
        for function, given in ((of, (hidden, matrix)), (plain, rounded))
    )
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == jnp.bfloat16
        np.testing.assert_allclose(one.astype(jnp.float32), other, atol=0.02 * float(jnp.abs(other).max()))


@pytest.mark.parametrize("argnums", [(0,), (0, 1)], ids=["frozen", "trained"])
def test_two_large_vocabularies_take_a_sixth_of_the_memory_of_all_logits(argnums: tuple[int, ...]) -> None:
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 1024, 64), (131072, 64))]

    def temporary(function: Callable[[Outputs, Outputs], Array]) -> int:
        def total(hidden: Array, matrix: Array, of_teacher: Array, its_matrix: Array) -> Array:
            return function(Outputs(of_teacher, its_matrix, Head()), Outputs(hidden, matrix, Head())).sum()

        analysis = jax.jit(jax.grad(total, argnums)).lower(*shapes, *shapes).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    def whole(teacher: Outputs, student: Outputs) -> Array:
        return forward_kl(*(jax.nn.log_softmax(outputs.hidden @ outputs.matrix.T) for outputs in (teacher, student)))

    all_logits = temporary(whole)
    assert all_logits >= 2048 * 131072 * 4
    found = temporary(lambda teacher, student: distillation_losses(forward_kl, teacher, student, 131072))
    assert found <= all_logits / 6
