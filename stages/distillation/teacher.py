"""The teacher: a frozen model, on the student's devices or on its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from stages.contract import StageContext
from stages.distillation.config import DistillationConfig, TeacherConfig
from stages.engine.cluster.axes import constrain
from stages.engine.cluster.config import MeshConfig
from stages.engine.cluster.mesh import ROWS, WHOLE, Cluster, all_devices
from stages.engine.cluster.placement import divide_rows
from stages.engine.cluster.programs import compiled
from stages.engine.cluster.roles import hand_over, split_devices
from stages.engine.data.batching import Batch
from stages.engine.data.records import read_descriptor
from stages.engine.data.same_tokens import check_same_tokens
from stages.engine.models.axes import place_weights, weight_spec
from stages.engine.models.heads import output_head, outputs_at_targets
from stages.engine.models.lora import Weights, bind
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import load_model
from stages.engine.models.transformer import Cells
from stages.engine.objectives.projection import Head
from stages.errors import UserError

INPUT = "teacher"
"""Name of the input."""


@dataclass(frozen=True)
class Teacher:
    """What a student learns from. The logits are not made here: they are many times larger than what they are made of.

    Attributes:
        read: from a micro-batch to the hidden states before its targets, on the student's devices, divided by rows.
        matrix: that they are multiplied with, on the student's devices.
        head: what is done then.
    """

    read: Callable[[Batch], Float[Array, "B R D"]]
    matrix: Float[Array, "_ _"]
    head: Head


def check_source(context: StageContext, config: DistillationConfig, folders: Mapping[str, Path]) -> None:
    """Checks that it is clear what the student learns from: a teacher, or what one made of the datasets before.

    Args:
        context: of the stage.
        config: its settings.
        folders: of the datasets by the names of their inputs.

    Raises:
        UserError: there is neither, or both, or settings are for a teacher that there is not.
    """
    scored = [name for name, folder in folders.items() if read_descriptor(folder).top_tokens is not None]
    if context.has_input(INPUT):
        if scored:
            raise UserError(
                f"input `{scored[0]}` holds what a teacher made of it; take out the input `{INPUT}`, or give the "
                "dataset as it was before `teacher_logits`"
            )
        return
    missing = [name for name in folders if name not in scored]
    if missing:
        raise UserError(
            f"nothing to learn from: give the input `{INPUT}`, or for `{missing[0]}` the output of `teacher_logits`"
        )
    if config.on_policy is not None:
        raise UserError(f"on_policy: what the student says must be read by a teacher; give the input `{INPUT}`")
    if config.teacher.num_devices is not None:
        raise UserError(f"teacher.num_devices: there is no input `{INPUT}`, so nothing would run there")


def open_teacher(context: StageContext, student: OpenedModel) -> OpenedModel | None:
    """Opens the teacher, of any size and family, where there is one.

    Raises:
        UserError: it has another tokenizer, or is no language model.
    """
    if not context.has_input(INPUT):
        return None
    teacher = open_model(context, INPUT)
    check_same_tokens(student.tokenizer, teacher.tokenizer, INPUT)
    return teacher


def make_clusters(mesh: MeshConfig, teacher: TeacherConfig) -> tuple[Cluster, Cluster]:
    """The devices of student and teacher; the same where the teacher has none of its own.

    Raises:
        UserError: they cannot be arranged so, or the teacher does not divide rows as evenly as the student.
    """
    if teacher.num_devices is None:
        shared = all_devices(mesh)
        return shared, shared
    student, own = split_devices(mesh, teacher.mesh, teacher.num_devices, INPUT)
    if student.num_row_shares % own.num_row_shares:
        raise UserError(
            f"teacher.mesh divides rows into {own.num_row_shares} parts (data x fsdp x expert), which does not divide "
            f"the {student.num_row_shares} of the student's; arrange the teacher's devices along `tensor`"
        )
    return student, own


def load_teacher(opened: OpenedModel, temperature: float, cluster: Cluster, student: Cluster) -> Teacher:
    """Loads the teacher onto its devices, and its output matrix onto the student's.

    Args:
        opened: the teacher.
        temperature: at which it is compared.
        cluster: its devices.
        student: the student's devices; may be the same.
    """
    loaded = load_model(opened, cluster)
    graph, base = loaded.frozen
    adapter = place_weights(cluster, loaded.trained)

    def read(adapter: Weights, base: Cells, batch: Batch) -> Float[Array, "B R D"]:
        return constrain(outputs_at_targets(bind(graph, adapter, base), batch).hidden, "rows", None, None)

    program = compiled(cluster, read)
    matrix, head = output_head(bind(graph, adapter, base), temperature)

    def read_for_student(batch: Batch) -> Float[Array, "B R D"]:
        hidden = program(adapter, base, divide_rows(cluster, batch))
        return hidden if cluster is student else hand_over(hidden, student, PartitionSpec(ROWS))

    if cluster is not student:
        matrix = hand_over(matrix, student, _matrix_spec(student, head, matrix.shape))
    return Teacher(read_for_student, matrix, head)


def _matrix_spec(student: Cluster, head: Head, shape: tuple[int, ...]) -> PartitionSpec:
    """How the student's devices divide the matrix: as their own of this kind."""
    name = "embed.embedding" if head.vocab_axis == 0 else "lm_head.kernel"
    return WHOLE if student.mesh is None else weight_spec(student.mesh, name, shape)
