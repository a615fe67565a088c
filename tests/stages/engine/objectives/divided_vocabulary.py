"""Log-probabilities and divergences whose rows and vocabulary four devices share; see `test_divided_vocabulary.py`."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array

from stages.engine.objectives import chunked_logprobs as chunked
from stages.engine.objectives import chunked_losses
from stages.engine.objectives.chunked_logprobs import chunked_logprobs
from stages.engine.objectives.distillation import distillation_losses, forward_kl, top_losses, top_tokens
from stages.engine.objectives.projection import Head, Outputs

B, R, D, V = 4, 5, 8, 148
HIDDEN, MATRIX, COTANGENT = (
    jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate(((B, R, D), (V, D), (B, R)))
)
TARGETS = jax.random.randint(jax.random.key(3), (B, R), 0, V)


def value_and_gradients(hidden: Array, matrix: Array, targets: Array) -> tuple[Array, Array, Array]:
    found, back = jax.vjp(lambda hidden, matrix: chunked_logprobs(hidden, matrix, targets), hidden, matrix)
    return found, *back(COTANGENT)


@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 4), (2, 2), (4, 1)])
def test_devices_that_share_rows_and_vocabulary_give_the_result_of_one(
    rows: int, vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "CHUNK_ENTRIES", 2 * B * V)
    mesh = jax.make_mesh((rows, vocabulary), ("rows", "vocabulary"), axis_types=(AxisType.Auto,) * 2)
    specs = PartitionSpec("rows"), PartitionSpec("vocabulary"), PartitionSpec("rows")
    inputs = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in zip((HIDDEN, MATRIX, TARGETS), specs, strict=True)
    ]
    run = jax.jit(value_and_gradients)
    for found, expected in zip(run(*inputs), run(HIDDEN, MATRIX, TARGETS), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    program = run.lower(*inputs).compile().as_text()
    assert program is not None
    shapes = {tuple(map(int, shape.split(","))) for shape in re.findall(r"f32\[(\d+(?:,\d+)*)\]", program)}
    logits = {shape for shape in shapes if shape[-1] in (V, V // vocabulary)}
    assert {shape for shape in logits if len(shape) > 1} == {(2 * B // rows, V // vocabulary)}


def test_a_student_whose_vocabulary_is_divided_as_its_teachers_learns_what_one_device_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunked_losses, "CHUNK_ENTRIES", 2 * B * V)
    mesh = jax.make_mesh((2, 2), ("rows", "vocabulary"), axis_types=(AxisType.Auto,) * 2)

    def run(hidden: Array, matrix: Array) -> tuple[Array, ...]:
        teacher = Outputs(-hidden, matrix, Head())

        def losses(hidden: Array) -> tuple[Array, Array]:
            student, top = Outputs(hidden, matrix, Head()), top_tokens(teacher, 5, V)
            return distillation_losses(forward_kl, teacher, student, V), top_losses(forward_kl, top, student, V)

        (whole, top), back = jax.vjp(losses, hidden)
        return whole, top, *back((COTANGENT, COTANGENT))

    placed = [
        jax.device_put(array, NamedSharding(mesh, PartitionSpec(axis)))
        for array, axis in ((HIDDEN, "rows"), (MATRIX, "vocabulary"))
    ]
    for found, expected in zip(jax.jit(run)(*placed), jax.jit(run)(HIDDEN, MATRIX), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
