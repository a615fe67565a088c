"""How far a student's distributions over the next token are from a teacher's.

The plain functions take log-probabilities of the same events; the others make them of hidden states, so that neither
model's logits exist for all tokens at once. Where a temperature T divides the logits of both, losses are multiplied by
T², so that gradients keep their size (arXiv 1503.02531, section 2).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.engine.objectives.chunked_losses import chunked_losses, cut_tokens
from stages.engine.objectives.projection import Outputs, join, project

Divergence = Callable[[Float[Array, "*B E"], Float[Array, "*B E"]], Float[Array, "*B"]]
"""From the teacher's and the student's log-probabilities of E events to their divergence in nats."""


def forward_kl(teacher: Float[Array, "*B E"], student: Float[Array, "*B E"]) -> Float[Array, "*B"]:
    """KL(teacher, student): the student must cover all that the teacher may say (arXiv 1503.02531).

    Args:
        teacher: log-probabilities of all events in nats, finite.
        student: those of the same events.
    """
    return jnp.sum(jnp.exp(teacher) * (teacher - student), axis=-1)


def reverse_kl(teacher: Float[Array, "*B E"], student: Float[Array, "*B E"]) -> Float[Array, "*B"]:
    """KL(student, teacher): the student must not say what the teacher would not (arXiv 2306.08543).

    Its gradient is the expectation, over the student's next token, of the policy gradient whose advantage is
    log teacher - log student of that token: on responses of the student's own, it is that without the noise of a draw.
    """
    return forward_kl(student, teacher)


def generalised_jsd(teacher: Float[Array, "*B E"], student: Float[Array, "*B E"], beta: float) -> Float[Array, "*B"]:
    """Sum of beta KL(teacher, M) and (1 - beta) KL(student, M) for M = beta teacher + (1 - beta) student.

    Source: arXiv 2306.13649, equation 1. Divided by beta it goes to the forward KL for beta → 0, divided by 1 - beta to
    the reverse KL for beta → 1.

    Args:
        teacher: log-probabilities of all events in nats, finite.
        student: those of the same events.
        beta: between 0 and 1, both excluded.
    """
    mixture = jnp.logaddexp(teacher + jnp.log(beta), student + jnp.log1p(-beta))
    return beta * forward_kl(teacher, mixture) + (1 - beta) * forward_kl(student, mixture)


def distillation_losses(
    divergence: Divergence, teacher: Outputs, student: Outputs, num_tokens: int
) -> Float[Array, "B R"]:
    """T² times the divergence for each token, in float32; gradients go to the student only.

    Args:
        divergence: of two distributions.
        teacher: after the same tokens; its temperature is the student's.
        student: of any width.
        num_tokens: the first so many entries of both vocabularies are compared: what follows belongs to no token.
    """
    temperature = student.head.temperature

    def loss(logits: Float[Array, "N V"], hidden: Float[Array, "N D"], matrix: Float[Array, "_ _"]) -> Array:
        expected = _log_softmax(project(hidden, matrix, teacher.head) / temperature, num_tokens)
        return temperature**2 * divergence(expected, _log_softmax(logits, num_tokens))

    return chunked_losses(loss, student, teacher.hidden, teacher.matrix)


class TopTokens(NamedTuple):
    """A teacher's K most likely tokens, and the probability of all others together.

    Attributes:
        ids: of the tokens, the most likely first.
        logprobs: of each in nats, then that of the rest.
    """

    ids: Int[Array, "*B K"]
    logprobs: Float[Array, "*B K+1"]


def top_tokens(teacher: Outputs, num_top: int, num_tokens: int) -> TopTokens:
    """What `top_losses` compares with, [B, R, ...], in float32.

    Args:
        teacher: with the temperature of the student.
        num_top: K, below `num_tokens`: the rest is never empty.
        num_tokens: see `distillation_losses`.
    """
    matrix, head = teacher.matrix, teacher.head

    def of_chunk(hidden: Float[Array, "N D"]) -> TopTokens:
        logits = (project(hidden, matrix, head) / head.temperature)[:, :num_tokens]
        ids = jax.lax.top_k(logits, num_top)[1]
        return TopTokens(ids, _top_logprobs(logits, ids))

    found = jax.lax.map(of_chunk, cut_tokens(teacher.hidden, matrix, head))
    return TopTokens(*(join(part, teacher.hidden.shape[:2]) for part in found))


def top_losses(divergence: Divergence, teacher: TopTokens, student: Outputs, num_tokens: int) -> Float[Array, "B R"]:
    """T² times the divergence over K + 1 events: the teacher's K most likely tokens, and any other token.

    Nothing is normalised again: the student learns how likely the rest is, though not what is likely within it. The
    forward and the reverse KL, and the generalised JSD, are never more than those over all tokens.

    Args:
        divergence: of two distributions.
        teacher: [B, R, ...], at the student's temperature.
        student: of any width.
        num_tokens: see `distillation_losses`.
    """
    temperature = student.head.temperature

    def loss(logits: Float[Array, "N V"], expected: TopTokens, _: None) -> Array:
        return temperature**2 * divergence(expected.logprobs, _top_logprobs(logits[:, :num_tokens], expected.ids))

    return chunked_losses(loss, student, teacher, None)


def _top_logprobs(logits: Float[Array, "N V"], ids: Int[Array, "N K"]) -> Float[Array, "N K+1"]:
    """Log-probabilities of the ids and of all others together, added up: 1 less the ids' could be rounding alone."""
    total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    rest = jnp.put_along_axis(logits, ids, -jnp.inf, axis=-1, inplace=False)
    found = jnp.take_along_axis(logits, ids, axis=-1), jax.nn.logsumexp(rest, axis=-1, keepdims=True)
    return jnp.concatenate(found, axis=-1) - total


def _log_softmax(logits: Float[Array, "N V"], num_tokens: int) -> Float[Array, "N _"]:
    return jax.nn.log_softmax(logits[:, :num_tokens], axis=-1)
