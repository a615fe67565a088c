"""Divergences between a teacher and a student: values, gradients, and what top tokens leave out."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.objectives import chunked_losses as chunked
from stages.engine.objectives.distillation import (
    Divergence,
    distillation_losses,
    forward_kl,
    generalised_jsd,
    reverse_kl,
    top_losses,
    top_tokens,
)
from stages.engine.objectives.projection import Head, Outputs

pytestmark = pytest.mark.usefixtures("quickly_compiled")

B, R, V, NUM_TOKENS = 2, 5, 21, 19
DIVERGENCES: dict[str, Divergence] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jsd": partial(generalised_jsd, beta=0.3),
}
EACH = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)


@pytest.fixture(autouse=True)
def two_tokens_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "CHUNK_ENTRIES", 2 * B * V)


def drawn(key: int, *shape: int) -> Float[Array, "..."]:
    return jax.random.normal(jax.random.key(key), shape)


TEMPERATURE = 1.7
TEACHER = Outputs(drawn(0, B, R, 6), drawn(1, 6, V + 2), Head(vocab_axis=1, temperature=TEMPERATURE))
STUDENT = Outputs(drawn(2, B, R, 4), drawn(3, V, 4), Head(temperature=TEMPERATURE, soft_cap=5.0))
COTANGENT = drawn(4, B, R)


# --- the divergences ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("divergence", "expected"),
    [
        # Teacher (1/2, 1/2), student (3/4, 1/4); for beta = 1/4 the mixture is (11/16, 5/16).
        (forward_kl, 0.5 * np.log(2 / 3) + 0.5 * np.log(2)),
        (reverse_kl, 0.75 * np.log(3 / 2) + 0.25 * np.log(1 / 2)),
        (partial(generalised_jsd, beta=0.5), 0.5 * (0.5 * np.log(0.8) + 0.5 * np.log(4 / 3))
         + 0.5 * (0.75 * np.log(1.2) + 0.25 * np.log(2 / 3))),
        (partial(generalised_jsd, beta=0.25), 0.25 * (0.5 * np.log(8 / 11) + 0.5 * np.log(8 / 5))
         + 0.75 * (0.75 * np.log(12 / 11) + 0.25 * np.log(4 / 5))),
    ],
    ids=["forward_kl", "reverse_kl", "jsd 0.5", "jsd 0.25"],
)  # fmt: skip
def test_values_are_worked_by_hand(divergence: Divergence, expected: float) -> None:
    teacher, student = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.75, 0.25]))
    np.testing.assert_allclose(divergence(teacher, student), expected, rtol=1e-5)
    np.testing.assert_allclose(divergence(teacher, teacher), 0.0, atol=1e-7)


def test_gradients_by_logits_are_worked_by_hand() -> None:
    teacher, student = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.75, 0.25]))

    def slopes(divergence: Divergence) -> Array:
        return jax.jit(jax.grad(lambda logits: divergence(teacher, jax.nn.log_softmax(logits))))(student)

    np.testing.assert_allclose(slopes(forward_kl), [0.25, -0.25], rtol=1e-5)
    # q (log q/p - KL) for the first of two events is q(1-q) (log q/p of the first - that of the second).
    np.testing.assert_allclose(slopes(reverse_kl)[0], 3 / 16 * np.log(3), rtol=1e-5)
    np.testing.assert_allclose(
        slopes(partial(generalised_jsd, beta=0.5))[0], 0.5 * 3 / 16 * np.log(1.2 / (2 / 3)), rtol=1e-5
    )


def test_the_generalised_divergence_goes_to_both_of_the_others() -> None:
    teacher, student = (jax.nn.log_softmax(drawn(key, 50)) for key in (5, 6))
    near = 1e-3
    np.testing.assert_allclose(generalised_jsd(teacher, student, near) / near, forward_kl(teacher, student), rtol=1e-2)
    np.testing.assert_allclose(
        generalised_jsd(teacher, student, 1 - near) / near, reverse_kl(teacher, student), rtol=1e-2
    )


def test_the_reverse_divergence_is_the_policy_gradient_whose_advantage_is_the_log_ratio_without_its_noise() -> None:
    teacher, logits = jax.nn.log_softmax(drawn(7, 9)), drawn(8, 9)
    student = jax.nn.log_softmax(logits)
    advantages = teacher - student
    of_each_draw = np.eye(9) - np.exp(student)
    expected = -(jnp.exp(student) * advantages) @ of_each_draw
    found = jax.jit(jax.grad(lambda logits: reverse_kl(teacher, jax.nn.log_softmax(logits))))(logits)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@EACH
def test_nothing_overflows_where_one_of_the_two_is_certain(divergence: Divergence) -> None:
    certain = jax.nn.log_softmax(jnp.array([300.0, 0.0, -300.0]))
    other = jax.nn.log_softmax(jnp.array([-300.0, 0.0, 300.0]))
    of = jax.jit(jax.value_and_grad(divergence, argnums=1))
    for pair in ((certain, other), (certain, certain)):
        value, slopes = of(*pair)
        assert np.isfinite(value)
        assert np.isfinite(slopes).all()


# --- of hidden states, in chunks ----------------------------------------------------------------


def logprobs_of(outputs: Outputs) -> np.ndarray:
    """In float64, by numpy."""
    hidden, matrix = np.asarray(outputs.hidden, np.float64), np.asarray(outputs.matrix, np.float64)
    logits = hidden @ (matrix if outputs.head.vocab_axis else matrix.T)
    if outputs.head.soft_cap is not None:
        logits = outputs.head.soft_cap * np.tanh(logits / outputs.head.soft_cap)
    scaled = logits[..., :NUM_TOKENS] / outputs.head.temperature
    return scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))


def in_numpy(name: str, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """T² times the divergence of two arrays of log-probabilities, written the other way round than the product's."""

    def kl(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return (one * np.log(one / other)).sum(-1)

    p, q = np.exp(p), np.exp(q)
    mixture = 0.3 * p + 0.7 * q
    values = {"forward_kl": kl(p, q), "reverse_kl": kl(q, p), "jsd": 0.3 * kl(p, mixture) + 0.7 * kl(q, mixture)}
    return TEMPERATURE**2 * values[name]


def losses(divergence: Divergence, hidden: Array, matrix: Array) -> Array:
    return distillation_losses(divergence, TEACHER, STUDENT._replace(hidden=hidden, matrix=matrix), NUM_TOKENS)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_losses_of_hidden_states_are_those_of_the_formula_in_float64(name: str) -> None:
    found = jax.jit(partial(losses, DIVERGENCES[name]))(STUDENT.hidden, STUDENT.matrix)
    np.testing.assert_allclose(found, in_numpy(name, logprobs_of(TEACHER), logprobs_of(STUDENT)), rtol=2e-5)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_gradients_are_the_finite_differences_of_float64(name: str) -> None:
    def total(outputs: Outputs) -> float:
        return float((in_numpy(name, logprobs_of(TEACHER), logprobs_of(outputs)) * np.asarray(COTANGENT)).sum())

    def of(hidden: Array, matrix: Array) -> Array:
        return (COTANGENT * losses(DIVERGENCES[name], hidden, matrix)).sum()

    by_hidden, by_matrix = jax.jit(jax.grad(of, (0, 1)))(STUDENT.hidden, STUDENT.matrix)
    step = 1e-6
    for field, gradient in (("hidden", by_hidden), ("matrix", by_matrix)):
        values = np.asarray(getattr(STUDENT, field), np.float64)
        for index in list(np.ndindex(values.shape))[:: values.size // 7]:
            moved = [values.copy() for _ in range(2)]
            moved[0][index] += step
            moved[1][index] -= step
            up, down = (total(STUDENT._replace(**{field: array})) for array in moved)
            np.testing.assert_allclose(gradient[index], (up - down) / (2 * step), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 100])
def test_the_size_of_a_chunk_changes_nothing(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Array]:
        def total(hidden: Array, matrix: Array) -> Array:
            return (COTANGENT * losses(forward_kl, hidden, matrix)).sum()

        return jax.tree.leaves(jax.jit(jax.value_and_grad(total, (0, 1)))(STUDENT.hidden, STUDENT.matrix))

    expected = run()
    monkeypatch.setattr(chunked, "CHUNK_ENTRIES", tokens * B * V)
    for found, other in zip(run(), expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-5)


def test_a_teacher_gets_no_gradient_and_a_student_that_is_the_teacher_none_that_counts() -> None:
    def of(teacher: Array, student: Array) -> Array:
        given, taught = (TEACHER._replace(hidden=hidden) for hidden in (teacher, student))
        return distillation_losses(reverse_kl, given, taught, NUM_TOKENS).sum()

    of_teacher, of_student = jax.jit(jax.grad(of, (0, 1)))(TEACHER.hidden, TEACHER.hidden)
    assert not np.asarray(of_teacher).any()
    np.testing.assert_allclose(of_student, 0.0, atol=1e-5)


# --- top tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DIVERGENCES)
def test_top_tokens_and_the_rest_are_events_like_any_others(name: str) -> None:
    top = jax.jit(lambda: top_tokens(TEACHER, 4, NUM_TOKENS))()
    p, q = logprobs_of(TEACHER), logprobs_of(STUDENT)
    np.testing.assert_array_equal(top.ids, np.argsort(-p, axis=-1)[..., :4])

    def events(logprobs: np.ndarray) -> np.ndarray:
        found = np.take_along_axis(logprobs, np.asarray(top.ids), axis=-1)
        return np.concatenate([found, np.log1p(-np.exp(found).sum(-1, keepdims=True))], axis=-1)

    np.testing.assert_allclose(top.logprobs, events(p), rtol=1e-5)
    found = jax.jit(lambda: top_losses(DIVERGENCES[name], top, STUDENT, NUM_TOKENS))()
    np.testing.assert_allclose(found, in_numpy(name, events(p), events(q)), rtol=1e-4, atol=1e-6)


def test_fewer_top_tokens_never_say_more_and_all_but_one_say_everything() -> None:
    def of_top(num: int) -> list[Array]:
        top = top_tokens(TEACHER, num, NUM_TOKENS)
        return [top_losses(divergence, top, STUDENT, NUM_TOKENS) for divergence in DIVERGENCES.values()]

    found = [np.asarray(jax.jit(of_top, static_argnums=0)(num)) for num in (2, NUM_TOKENS - 1)]
    whole = np.stack([in_numpy(name, logprobs_of(TEACHER), logprobs_of(STUDENT)) for name in DIVERGENCES])
    assert (found[0] < whole).all()
    assert (found[0] > 0).all()
    np.testing.assert_allclose(found[1], whole, rtol=1e-4)


def test_the_gradient_over_top_tokens_is_that_of_its_events() -> None:
    top = jax.jit(lambda: top_tokens(TEACHER, 3, NUM_TOKENS))()

    def plain(hidden: Array) -> Array:
        logits = 5.0 * jnp.tanh(hidden @ STUDENT.matrix.T / 5.0) / TEMPERATURE
        probs = jax.nn.softmax(logits[..., :NUM_TOKENS])
        found = jnp.take_along_axis(probs, top.ids, axis=-1)
        student = jnp.log(jnp.concatenate([found, 1 - found.sum(-1, keepdims=True)], axis=-1))
        return TEMPERATURE**2 * (COTANGENT * forward_kl(top.logprobs, student)).sum()

    def of(hidden: Array) -> Array:
        return (COTANGENT * top_losses(forward_kl, top, STUDENT._replace(hidden=hidden), NUM_TOKENS)).sum()

    np.testing.assert_allclose(
        *(jax.jit(jax.grad(function))(STUDENT.hidden) for function in (of, plain)), rtol=1e-4, atol=1e-5
    )


def test_a_rest_that_is_lost_in_rounding_still_has_its_probability() -> None:
    sure = Outputs(jnp.full((1, 1, 1), 30.0), jnp.array([[1.0], [0.0], [0.0]]), Head())
    found = jax.jit(lambda: top_tokens(sure, 1, 3))()
    np.testing.assert_allclose(found.logprobs[0, 0], [0.0, np.log(2) - 30], atol=1e-6)
