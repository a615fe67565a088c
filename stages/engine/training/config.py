"""Settings of optimizers, and those that all stages of supervised training share."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from stages.contract import Added, Execution, Seed, StageConfigBase, Strict
from stages.engine.cluster.config import MeshConfig
from stages.engine.models.config import TrainedModelConfig

Decay = Annotated[float, Field(ge=0, lt=1)]
"""Share of a running mean that stays at each update."""


class UpdateConfig(Strict):
    """What the settings of every optimizer have in common."""

    learning_rate: Annotated[float, Field(gt=0)]
    """Peak learning rate."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Updates over which the learning rate rises linearly from 0."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls between warm-up and the last step; `constant` keeps it."""
    decay_to: Annotated[float, Field(ge=0, le=1)] = Added(0.0)
    """Share of the peak that the learning rate falls to."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay, times the learning rate, on all trained weights but norms and biases."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Global norm to which larger gradients are scaled down before the update."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = Added(None)
    """Decay of a running mean of the weights, which is then what is evaluated and written; none writes the weights."""
    max_skipped_updates: Annotated[int, Field(ge=0)] = Added(3)
    """Updates of a run that may be skipped because loss or gradient is no finite number; one more ends it."""

    @staticmethod
    def kind_of(given: object) -> str:
        """Which optimizer settings are meant for: those that name none are AdamW's."""
        match given:
            case {"kind": str(kind)} | UpdateConfig(kind=kind):
                return kind
            case _:
                return "adamw"


class AdamWConfig(UpdateConfig):
    """AdamW (arXiv 1711.05101)."""

    kind: Literal["adamw"] = Added("adamw")
    """The optimizer; none means this one."""
    beta1: Decay = 0.9
    """Decay of the first moment."""
    beta2: Decay = 0.999
    """Decay of the second moment."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""


class AdafactorConfig(UpdateConfig):
    """Adafactor without first moment (arXiv 1804.04235), whose second moments of large matrices are factored."""

    kind: Literal["adafactor"]
    """The optimizer."""
    decay_rate: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The decay of second moments at update t is 1 - t ^ -decay_rate."""
    clipping_threshold: Annotated[float, Field(gt=0)] = 1.0
    """Root mean square to which the update of a weight, all layers together, is scaled down."""
    scale_by_weights: bool = False
    """Whether updates are multiplied by the root mean square of the weight."""


class LionConfig(UpdateConfig):
    """Lion (arXiv 2302.06675)."""

    kind: Literal["lion"]
    """The optimizer."""
    beta1: Decay = 0.9
    """Share of the moment, against the gradient, in the sign that an update takes."""
    beta2: Decay = 0.99
    """Decay of the moment."""


class MuonConfig(UpdateConfig):
    """Muon on the matrices of blocks and adapters (arXiv 2502.16982), AdamW on everything else."""

    kind: Literal["muon"]
    """The optimizer."""
    momentum: Decay = 0.95
    """Decay of the moment that is orthogonalized."""
    match_rms: Annotated[float, Field(gt=0)] | None = 0.2
    """Root mean square of a matrix's update before the learning rate, near that of AdamW, so that one learning rate
    serves both; none scales by sqrt(max(1, outputs / inputs))."""
    beta1: Decay = 0.9
    """Decay of AdamW's first moment."""
    beta2: Decay = 0.999
    """Decay of AdamW's second moment."""


class SgdConfig(UpdateConfig):
    """Stochastic gradient descent."""

    kind: Literal["sgd"]
    """The optimizer."""
    momentum: Decay = 0.0
    """Decay of the sum of gradients that an update follows."""
    nesterov: bool = False
    """Whether the update looks one step ahead."""


OptimizerConfig = Annotated[
    Annotated[AdamWConfig, Tag("adamw")]
    | Annotated[AdafactorConfig, Tag("adafactor")]
    | Annotated[LionConfig, Tag("lion")]
    | Annotated[MuonConfig, Tag("muon")]
    | Annotated[SgdConfig, Tag("sgd")],
    Discriminator(UpdateConfig.kind_of),
]
"""An optimizer and its settings, which are those of AdamW where they name none."""


class EvaluateConfig(Strict):
    """Evaluation on the input `validation` during training."""

    every_steps: Annotated[int, Field(ge=1)]
    """Steps between two evaluations; one is made after the last step too."""
    keep: Literal["last", "best"] = "last"
    """Which weights are written: those at the end, or those with the lowest loss."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Evaluations in a row without a lower loss that end the training; none goes on to the last step."""
    min_improvement: Annotated[float, Field(ge=0)] = 0.0
    """By how much a loss must be lower to count as lower."""


class SupervisedConfig(StageConfigBase):
    """What stages that learn from a dataset have in common."""

    model: TrainedModelConfig
    """What is trained."""
    optimizer: OptimizerConfig
    """How it is updated."""
    num_steps: Annotated[int, Field(ge=1)]
    """Optimizer updates."""
    batch_size: Annotated[int, Field(ge=1)]
    """Examples of one update."""
    max_tokens: Annotated[int, Field(ge=2)] = 1024
    """Longest example in tokens, prompt and response together."""
    evaluate: EvaluateConfig | None = Added(None)
    """Evaluation during training; it needs the input `validation`."""
    adapter_dropout: Annotated[float, Field(ge=0, lt=1)] = Added(0.0)
    """Share of its inputs that an adapted layer hides from its adapter in a training step, and nowhere else."""
    seed: Seed
    """Seed of the adapter's start, of the order of examples and of dropout."""
    train_micro_batch: Annotated[int, Field(ge=1)] = Execution(8)
    """Longest examples that one backward pass has room for on each part of the rows; shorter ones are packed."""
    save_every_steps: Annotated[int, Field(ge=1)] = Execution(10)
    """Steps between two resumable checkpoints."""
    mesh: MeshConfig = Execution(MeshConfig())
    """How the devices share the work."""

    @model_validator(mode="after")
    def _check_dropout(self) -> "SupervisedConfig":
        if self.adapter_dropout and self.model.lora is None:
            raise ValueError("adapter_dropout is for adapters, but model.lora is null: all weights are trained")
        return self
