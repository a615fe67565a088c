"""Settings of `evaluation`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.contract import Added, Execution, Seed, StageConfigBase, Strict
from stages.engine.rewards.config import RewardName
from stages.engine.rollout.config import SamplingConfig


class VerifiableTask(Strict):
    """Answers are drawn, and a rule compares them with the wanted one."""

    kind: Literal["verifiable"] = "verifiable"
    """Answers right or wrong."""
    num_samples: Annotated[int, Field(ge=1)] = 1
    """Answers drawn to each prompt; at temperature 0 they are all the same."""
    pass_at: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Each k of which `pass_at_k` is reported, the chance that one of k answers is right (arXiv 2107.03374)."""

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.pass_at and max(self.pass_at) > self.num_samples:
            raise ValueError(f"pass_at {max(self.pass_at)} needs as many answers; num_samples is {self.num_samples}")
        return self


class PerplexityTask(Strict):
    """How well the model expects what it did not write: texts, or the assistant's turns."""

    kind: Literal["perplexity"]
    """Log-probabilities of rows."""


class PreferenceTask(Strict):
    """Whether the model prefers the chosen of two replies."""

    kind: Literal["preference"]
    """Pairs of a chosen and a rejected reply."""
    by: Literal["logprobs", "rewards"]
    """Log-probabilities of the replies, from which those of the input `reference` are taken where it is given; or
    the rewards of a reward model."""


class WinRateTask(Strict):
    """Whether the model's reply is better than the dataset's, or than that of the input `reference`."""

    kind: Literal["win_rate"]
    """Two replies to a prompt."""
    by: Literal["judge", "rewards"]
    """Verdicts of the model `judge`, or rewards of the input `reward_model`."""
    judge_tokens: Annotated[int, Field(ge=8)] = 512
    """Longest verdict, reasons included."""


EvaluationTask = Annotated[VerifiableTask | PerplexityTask | PreferenceTask | WinRateTask, Field(discriminator="kind")]


class EvaluationConfig(StageConfigBase):
    """What a model is worth, on rows that it was not trained on."""

    task: EvaluationTask = Added(VerifiableTask())
    """What is measured."""
    sampling: SamplingConfig | None = None
    """How answers are drawn, where the task draws any."""
    accuracy: RewardName = "last_integer"
    """The rule that decides whether a response is right; the strict whole-reply rate is reported beside it."""
    seed: Seed = 0
    """Seed of the samples; without effect at temperature 0."""
    rollout_micro_batch: Annotated[int, Field(ge=1)] = Execution(32)
    """Prompts answered, or rows scored, at once."""

    @model_validator(mode="after")
    def _check_sampling(self) -> Self:
        draws = isinstance(self.task, VerifiableTask | WinRateTask)
        if draws and self.sampling is None:
            raise ValueError(f"a task of kind {self.task.kind} draws answers: say how in `sampling`")
        if not draws and self.sampling is not None:
            raise ValueError(f"a task of kind {self.task.kind} draws no answers: leave `sampling` out")
        return self
