"""Losses of pairs of a chosen and a rejected response, and of responses that are labelled one by one, for each of them.

A response's log-probability is the sum over its tokens, or their mean where that is said, in nats. A log-ratio is the
policy's less the reference's, which is a constant. beta is the weight of the reference: the reward that a policy stands
for is beta times its log-ratio.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from stages.engine.objectives.masking import ratio

_NEARLY_CERTAIN = -1e-6
"""Log-probabilities above it have no odds in float32; they count as this, without a gradient."""


def dpo(margins: Float[Array, "*P"], label_smoothing: float = 0.0) -> Float[Array, "*P"]:
    """-(1 - s) log σ(m) - s log σ(-m) (DPO, arXiv 2305.18290, equation 7; with s, conservative DPO).

    Args:
        margins: beta times the log-ratio of the chosen response less that of the rejected one, of sums.
        label_smoothing: s, the share of pairs that are taken to be the wrong way round, below 1/2.
    """
    return (1.0 - label_smoothing) * jax.nn.softplus(-margins) + label_smoothing * jax.nn.softplus(margins)


def robust_dpo(margins: Float[Array, "*P"], flip_rate: float) -> Float[Array, "*P"]:
    """(-(1 - e) log σ(m) + e log σ(-m)) / (1 - 2 e): its mean is DPO's on pairs of which none is flipped.

    Source: arXiv 2403.00409. Of a single pair it may be negative.

    Args:
        margins: as of `dpo`.
        flip_rate: e, the share of pairs that are the wrong way round, below 1/2.
    """
    kept, flipped = jax.nn.softplus(-margins), jax.nn.softplus(margins)
    return ((1.0 - flip_rate) * kept - flip_rate * flipped) / (1.0 - 2.0 * flip_rate)


def hinge(margins: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """max(0, 1 - m) (SLiC, arXiv 2305.10425, with rewards as of DPO); margins as of `dpo`."""
    return jax.nn.relu(1.0 - margins)


def ipo(differences: Float[Array, "*P"], beta: float) -> Float[Array, "*P"]:
    """(d - 1 / (2 beta))² (IPO, arXiv 2310.12036, equation 17).

    Args:
        differences: log-ratio of the chosen response less that of the rejected one, each the mean over the tokens of
            its response, so that long ones weigh no more; the paper has sums, of responses that are all short.
        beta: above 0.
    """
    return jnp.square(differences - 0.5 / beta)


def simpo(chosen: Float[Array, "*P"], rejected: Float[Array, "*P"], beta: float, margin: float) -> Float[Array, "*P"]:
    """-log σ(beta (c - r) - margin) (SimPO, arXiv 2405.14734, equation 6); it has no reference.

    Args:
        chosen: c, mean log-probability of the chosen response's tokens.
        rejected: r, that of the rejected one.
        beta: above 0.
        margin: gamma, by which rewards should differ.
    """
    return jax.nn.softplus(margin - beta * (chosen - rejected))


def odds_ratio(chosen: Float[Array, "*P"], rejected: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """-log σ(log(odds(c) / odds(r))) with odds(x) = eˣ / (1 - eˣ) (arXiv 2403.07691, equation 7).

    Args:
        chosen: c, mean log-probability of the chosen response's tokens.
        rejected: r, that of the rejected one.
    """
    return jax.nn.softplus(_log_odds(rejected) - _log_odds(chosen))


def orpo(chosen: Float[Array, "*P"], rejected: Float[Array, "*P"], odds_weight: float) -> Float[Array, "*P"]:
    """-c + odds_weight · `odds_ratio`(c, r) (ORPO, arXiv 2403.07691, equation 6); it has no reference.

    Each response counts by the mean over its tokens, in both parts.
    """
    return odds_weight * odds_ratio(chosen, rejected) - chosen


def kto(
    log_ratios: Float[Array, "*P"],
    desirable: Bool[Array, "*P"],
    baseline: Float[Array, ""],
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Float[Array, "*P"]:
    """KTO: w (1 - σ(±beta (ratio - baseline))), + for a desirable response and - for another (arXiv 2402.01306).

    Args:
        log_ratios: of sums over the tokens of a response.
        desirable: how it is labelled.
        baseline: from `kto_baseline`, a constant.
        beta: above 0.
        desirable_weight: w of a desirable response.
        undesirable_weight: w of another one.
    """
    signs = jnp.where(desirable, 1.0, -1.0)
    weights = jnp.where(desirable, desirable_weight, undesirable_weight)
    return weights * jax.nn.sigmoid(-beta * signs * (log_ratios - baseline))


def kto_baseline(total: Float[Array, ""], number: Float[Array, ""]) -> Float[Array, ""]:
    """Estimate of KL(policy, reference), at least 0 and without a gradient (arXiv 2402.01306).

    Args:
        total: sum of the log-ratios of responses after prompts that are not theirs.
        number: of these responses; 0 gives 0.
    """
    return jax.lax.stop_gradient(jnp.maximum(ratio(total, number), 0.0))


def preferred(chosen: Float[Array, "*P"], rejected: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """1 where the chosen response has the higher reward, 1/2 where both have the same, else 0."""
    return 0.5 * (1.0 + jnp.sign(chosen - rejected))


def _log_odds(logprobs: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """log(p / (1 - p)) from log p below 0."""
    known = jnp.minimum(logprobs, _NEARLY_CERTAIN)
    return known - jnp.log(-jnp.expm1(known))
