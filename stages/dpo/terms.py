"""What each kind of loss makes of the responses of groups: the settings meet the maths here."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from stages.dpo.config import (
    DpoLossConfig,
    HingeLossConfig,
    IpoLossConfig,
    KtoLossConfig,
    LikelihoodLossConfig,
    LossTermConfig,
    OrpoLossConfig,
    RobustDpoLossConfig,
    SimpoLossConfig,
)
from stages.engine.objectives.masking import ratio
from stages.engine.objectives.preference import dpo, hinge, ipo, kto, orpo, robust_dpo, simpo


class Responses(NamedTuple):
    """M groups of G responses in each of B rows; of a pair the chosen one comes first.

    Attributes:
        logps: log-probabilities in nats, summed over tokens; 0 where there is no response.
        ref_logps: those of the reference; of a loss that has none, anything.
        lengths: tokens of each; 0 where there is no response.
        desirable: which are chosen, or labelled as desirable.
        baseline: of KTO; of other losses, anything.
        groups_per_token: groups of the whole update over the tokens of its desirable responses.
    """

    logps: Float[Array, "B M G"]
    ref_logps: Float[Array, "B M G"]
    lengths: Float[Array, "B M G"]
    desirable: Bool[Array, "B M G"]
    baseline: Float[Array, ""]
    groups_per_token: Float[Array, ""]

    @property
    def log_ratios(self) -> Float[Array, "B M G"]:
        """Of policy and reference."""
        return self.logps - self.ref_logps

    @property
    def means(self) -> Float[Array, "B M G"]:
        """Log-probability of a response's mean token."""
        return ratio(self.logps, self.lengths)


class Term(NamedTuple):
    """A loss of each group, and the rewards that the policy stands for by it."""

    losses: Float[Array, "B M"]
    rewards: Float[Array, "B M G"]


def evaluate_term(config: LossTermConfig, given: Responses) -> Term:
    """The loss that the settings describe, of each group; entries without a group are meaningless but finite."""
    match config:
        case DpoLossConfig():
            return _dpo(config, given)
        case RobustDpoLossConfig():
            return _robust(config, given)
        case HingeLossConfig():
            return _hinge(config, given)
        case IpoLossConfig():
            return _ipo(config, given)
        case SimpoLossConfig():
            return _simpo(config, given)
        case OrpoLossConfig():
            return _orpo(config, given)
        case KtoLossConfig():
            return _kto(config, given)
        case LikelihoodLossConfig():
            return _likelihood(config, given)


def _dpo(config: DpoLossConfig, given: Responses) -> Term:
    rewards = config.beta * given.log_ratios
    return Term(dpo(_margins(rewards), config.label_smoothing), rewards)


def _robust(config: RobustDpoLossConfig, given: Responses) -> Term:
    rewards = config.beta * given.log_ratios
    return Term(robust_dpo(_margins(rewards), config.flip_rate), rewards)


def _hinge(config: HingeLossConfig, given: Responses) -> Term:
    rewards = config.beta * given.log_ratios
    return Term(hinge(_margins(rewards)), rewards)


def _ipo(config: IpoLossConfig, given: Responses) -> Term:
    per_token = ratio(given.log_ratios, given.lengths)
    return Term(ipo(_margins(per_token), config.beta), config.beta * per_token)


def _simpo(config: SimpoLossConfig, given: Responses) -> Term:
    means = given.means
    return Term(simpo(means[..., 0], means[..., 1], config.beta, config.margin), config.beta * means)


def _orpo(config: OrpoLossConfig, given: Responses) -> Term:
    means = given.means
    return Term(orpo(means[..., 0], means[..., 1], config.odds_weight), config.odds_weight * means)


def _kto(config: KtoLossConfig, given: Responses) -> Term:
    losses = kto(
        given.log_ratios,
        given.desirable,
        given.baseline,
        config.beta,
        config.desirable_weight,
        config.undesirable_weight,
    )
    return Term(losses.mean(-1), config.beta * given.log_ratios)


def _likelihood(config: LikelihoodLossConfig, given: Responses) -> Term:
    """Over the number of groups, the sum of these losses is the mean over tokens or responses."""
    logps = given.logps * given.groups_per_token if config.average == "tokens" else given.means
    return Term(-jnp.where(given.desirable, logps, 0.0).sum(-1), given.means)


def _margins(rewards: Float[Array, "B M 2"]) -> Float[Array, "B M"]:
    return rewards[..., 0] - rewards[..., 1]
