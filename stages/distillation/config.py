"""Settings of `distillation`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.contract import Execution, Strict
from stages.engine.cluster.config import MeshConfig
from stages.engine.rollout.config import SamplingConfig
from stages.engine.training.config import SupervisedConfig


class ForwardKlConfig(Strict):
    """KL(teacher, student): the student learns to cover all that the teacher may say (arXiv 1503.02531)."""

    kind: Literal["forward_kl"]
    """The divergence."""


class ReverseKlConfig(Strict):
    """KL(student, teacher): the student learns not to say what the teacher would not (arXiv 2306.08543)."""

    kind: Literal["reverse_kl"]
    """The divergence."""


class JsdConfig(Strict):
    """The generalised Jensen-Shannon divergence (arXiv 2306.13649)."""

    kind: Literal["jsd"]
    """The divergence."""
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the teacher in the mixture that both are compared with: near 0 it is beta times the forward KL, near 1
    it is 1 - beta times the reverse KL."""


DivergenceConfig = Annotated[ForwardKlConfig | ReverseKlConfig | JsdConfig, Field(discriminator="kind")]
"""How far two distributions are from each other."""


class OnPolicyConfig(Strict):
    """Responses that the student draws itself, in each step anew, instead of those of the dataset."""

    sampling: SamplingConfig
    """How they are drawn."""
    rollout_micro_batch: Annotated[int, Field(ge=1)] = Execution(8)
    """Prompts sampled at once."""


class TeacherConfig(Strict):
    """Where the teacher runs."""

    num_devices: Annotated[int, Field(ge=1)] | None = None
    """The last so many devices are the teacher's alone, and `mesh` of the stage arranges the others; none lets teacher
    and student share all of them, arranged alike."""
    mesh: MeshConfig = MeshConfig()
    """How devices of its own share the work."""

    @model_validator(mode="after")
    def _check_mesh(self) -> Self:
        if self.num_devices is None and self.mesh != MeshConfig():
            raise ValueError("mesh: the teacher has no devices of its own to arrange; set num_devices")
        return self


class DistillationConfig(SupervisedConfig):
    """Training of a student on the distributions of a teacher, the input `teacher`."""

    divergence: DivergenceConfig
    """What is minimized, at each token of the responses."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits of both before they are compared; the loss is multiplied by its square."""
    on_policy: OnPolicyConfig | None = None
    """Lets the student draw the responses; none takes those of the dataset."""
    teacher: TeacherConfig = Execution(TeacherConfig())
    """Where the teacher runs."""
