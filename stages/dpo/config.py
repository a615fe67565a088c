"""Settings of `dpo`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.contract import Execution, Strict
from stages.engine.training.config import SupervisedConfig

Beta = Annotated[float, Field(gt=0)]
"""Weight of the reference: a reward is beta times a log-ratio."""
FlipRate = Annotated[float, Field(ge=0, lt=0.5)]
"""Share of pairs of which the rejected response is the better one."""


class DpoLossConfig(Strict):
    """Direct preference optimization (arXiv 2305.18290)."""

    kind: Literal["dpo"]
    """The loss."""
    beta: Beta = 0.1
    """Weight of the reference."""
    label_smoothing: FlipRate = 0.0
    """Share of pairs that are taken to be the wrong way round: the loss is cautious (conservative DPO)."""


class RobustDpoLossConfig(Strict):
    """DPO whose mean is that on pairs of which none is flipped (arXiv 2403.00409)."""

    kind: Literal["robust"]
    """The loss."""
    beta: Beta = 0.1
    """Weight of the reference."""
    flip_rate: FlipRate
    """Share of pairs that are the wrong way round."""


class IpoLossConfig(Strict):
    """Identity preference optimization (arXiv 2310.12036), on means over the tokens of a response."""

    kind: Literal["ipo"]
    """The loss."""
    beta: Beta = 0.1
    """Log-ratios per token are to differ by 1 / (2 beta)."""


class HingeLossConfig(Strict):
    """Hinge loss (SLiC, arXiv 2305.10425) on the rewards of DPO."""

    kind: Literal["hinge"]
    """The loss."""
    beta: Beta = 0.1
    """Weight of the reference; rewards are to differ by 1."""


class SimpoLossConfig(Strict):
    """SimPO (arXiv 2405.14734), which has no reference."""

    kind: Literal["simpo"]
    """The loss."""
    beta: Beta = 2.0
    """A reward is beta times the mean log-probability of a response's tokens."""
    margin: Annotated[float, Field(ge=0)] = 1.0
    """By how much rewards are to differ."""


class OrpoLossConfig(Strict):
    """Likelihood and odds ratio together (ORPO, arXiv 2403.07691), which has no reference."""

    kind: Literal["orpo"]
    """The loss."""
    odds_weight: Annotated[float, Field(gt=0)] = 0.1
    """Weight of the odds ratio beside the likelihood of the chosen response."""


class KtoLossConfig(Strict):
    """KTO (arXiv 2402.01306), for responses that are labelled one by one; a pair is two of them."""

    kind: Literal["kto"]
    """The loss."""
    beta: Beta = 0.1
    """Weight of the reference."""
    desirable_weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of a desirable response."""
    undesirable_weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of an undesirable response."""
    baseline: Literal["mismatched", "zero"] = "mismatched"
    """What log-ratios are compared with: their mean over the update's prompts with the responses of other rows, which
    takes a second forward pass, or 0."""

    @property
    def needs_others(self) -> bool:
        """Whether prompts are scored with the responses of other rows."""
        return self.baseline == "mismatched"


class LikelihoodLossConfig(Strict):
    """Negative log-likelihood of the chosen response, as in supervised fine-tuning."""

    kind: Literal["sft"]
    """The loss."""
    average: Literal["tokens", "responses"] = "tokens"
    """Whether every token of an update counts alike, or every response by the mean over its tokens."""


ComparingLossConfig = (
    DpoLossConfig
    | RobustDpoLossConfig
    | IpoLossConfig
    | HingeLossConfig
    | SimpoLossConfig
    | OrpoLossConfig
    | KtoLossConfig
)
"""A loss that tells better responses from worse ones."""

LossTermConfig = Annotated[ComparingLossConfig | LikelihoodLossConfig, Field(discriminator="kind")]
"""One loss and its settings."""


class WeightedLossConfig(Strict):
    """A term of a sum."""

    weight: Annotated[float, Field(gt=0)]
    """What the loss is multiplied by."""
    loss: LossTermConfig
    """The loss."""

    @property
    def kind(self) -> str:
        """Of the loss."""
        return self.loss.kind


class CombinationLossConfig(Strict):
    """A weighted sum of losses."""

    kind: Literal["combination"]
    """The loss."""
    terms: Annotated[tuple[WeightedLossConfig, ...], Field(min_length=2)]
    """What is added up; rewards in the metrics are those of the first."""

    @model_validator(mode="after")
    def _check_terms(self) -> Self:
        kinds = [term.kind for term in self.terms]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(f"terms: {', '.join(twice)} stands there more than once; add up the weights")
        if kinds[0] == "sft":
            raise ValueError("terms: the first must compare responses; put `sft` after it")
        return self


LossConfig = Annotated[ComparingLossConfig | CombinationLossConfig, Field(discriminator="kind")]
"""What is minimized."""

REFERENCE_FREE = frozenset({"simpo", "orpo", "sft"})
"""Kinds of losses that no reference enters."""


class DpoConfig(SupervisedConfig):
    """Training on pairs of a chosen and a rejected response, or on labelled responses."""

    loss: LossConfig
    """What is minimized."""
    identical_pairs: Literal["fail", "drop"] = "fail"
    """What becomes of pairs whose responses are the same tokens: they say nothing."""
    reference_logprobs: Literal["each_step", "precomputed"] = Execution("each_step")
    """When the reference is run: on the examples of each step, or once on all of them before the first, which takes
    its share of time and memory out of the steps and pays from the second pass over the data on."""

    @property
    def terms(self) -> tuple[WeightedLossConfig, ...]:
        """The loss as a sum."""
        if isinstance(self.loss, CombinationLossConfig):
            return self.loss.terms
        return (WeightedLossConfig(weight=1.0, loss=self.loss),)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss compares with a reference."""
        return any(term.kind not in REFERENCE_FREE for term in self.terms)

    @property
    def needs_baseline(self) -> bool:
        """Whether a baseline is estimated in each update."""
        return any(isinstance(term.loss, KtoLossConfig) and term.loss.needs_others for term in self.terms)

    @property
    def takes_labels(self) -> bool:
        """Whether the loss is defined for responses without a pair."""
        return all(term.kind == "kto" for term in self.terms)

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        if self.reference_logprobs == "precomputed" and not self.needs_reference:
            raise ValueError(f"reference_logprobs: a loss of kind {self.loss.kind} has no reference; leave it out")
        return self
