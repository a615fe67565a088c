"""Every stage kind, in one literal table: the only place where a new stage is added."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stages.contract import Artifact, DatasetArtifact, ModelArtifact, ReportArtifact, StageConfigBase
from stages.distillation.config import DistillationConfig
from stages.dpo.config import DpoConfig
from stages.evaluation.config import EvaluationConfig
from stages.export.config import ExportConfig
from stages.grpo.config import GrpoConfig
from stages.prepare.config import PrepareConfig
from stages.reward_model.config import RewardModelConfig
from stages.sft.config import SftConfig
from stages.teacher_logits.config import TeacherLogitsConfig


@dataclass(frozen=True)
class Stage:
    """The signature of a stage kind.

    Attributes:
        config: its settings.
        version: raised by hand when the same settings and inputs would give another result.
        module: where `run(context, config)` is; only a stage's own process imports it.
        inputs: name to artifact type, all required.
        outputs: name to artifact type.
        multi_process: whether several processes can run it together.
        optional_inputs: those that it works without.
    """

    config: type[StageConfigBase]
    version: int
    module: str
    inputs: Mapping[str, type[Artifact]]
    outputs: Mapping[str, type[Artifact]]
    multi_process: bool
    optional_inputs: Mapping[str, type[Artifact]] = field(default_factory=dict)


STAGES: Mapping[str, Stage] = {
    "prepare": Stage(
        config=PrepareConfig,
        version=1,
        module="stages.prepare.run",
        inputs={},
        outputs={
            "train": DatasetArtifact,
            "validation": DatasetArtifact,
            "held_out": DatasetArtifact,
            "report": ReportArtifact,
        },
        multi_process=False,
    ),
    "sft": Stage(
        config=SftConfig,
        version=1,
        module="stages.sft.run",
        inputs={"model": ModelArtifact, "dataset": DatasetArtifact},
        optional_inputs={"validation": DatasetArtifact},
        outputs={"checkpoint": ModelArtifact, "report": ReportArtifact},
        multi_process=True,
    ),
    "dpo": Stage(
        config=DpoConfig,
        version=1,
        module="stages.dpo.run",
        inputs={"model": ModelArtifact, "dataset": DatasetArtifact},
        optional_inputs={"validation": DatasetArtifact, "reference": ModelArtifact},
        outputs={"checkpoint": ModelArtifact, "report": ReportArtifact},
        multi_process=True,
    ),
    "reward_model": Stage(
        config=RewardModelConfig,
        version=1,
        module="stages.reward_model.run",
        inputs={"model": ModelArtifact, "dataset": DatasetArtifact},
        optional_inputs={"validation": DatasetArtifact},
        outputs={"checkpoint": ModelArtifact, "report": ReportArtifact},
        multi_process=True,
    ),
    "grpo": Stage(
        config=GrpoConfig,
        version=1,
        module="stages.grpo.run",
        inputs={"model": ModelArtifact, "dataset": DatasetArtifact},
        outputs={"checkpoint": ModelArtifact, "report": ReportArtifact},
        multi_process=True,
    ),
    "teacher_logits": Stage(
        config=TeacherLogitsConfig,
        version=1,
        module="stages.teacher_logits.run",
        inputs={"teacher": ModelArtifact, "dataset": DatasetArtifact},
        outputs={"dataset": DatasetArtifact},
        multi_process=False,
    ),
    "distillation": Stage(
        config=DistillationConfig,
        version=1,
        module="stages.distillation.run",
        inputs={"model": ModelArtifact, "dataset": DatasetArtifact},
        optional_inputs={"teacher": ModelArtifact, "validation": DatasetArtifact},
        outputs={"checkpoint": ModelArtifact, "report": ReportArtifact},
        multi_process=True,
    ),
    "export": Stage(
        config=ExportConfig,
        version=1,
        module="stages.export.run",
        inputs={"model": ModelArtifact},
        outputs={"model": ModelArtifact},
        multi_process=False,
    ),
    "evaluation": Stage(
        config=EvaluationConfig,
        version=1,
        module="stages.evaluation.run",
        inputs={"model": ModelArtifact, "dataset": DatasetArtifact},
        optional_inputs={"reference": ModelArtifact, "judge": ModelArtifact, "reward_model": ModelArtifact},
        outputs={"report": ReportArtifact},
        multi_process=True,
    ),
}
