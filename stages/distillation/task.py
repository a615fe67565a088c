"""Responses as a task of supervised training, whoever wrote them."""

from collections.abc import Sequence

from stages.distillation.config import DistillationConfig
from stages.distillation.loss import DistillationBatch, make_distillation_loss
from stages.distillation.on_policy import StudentSampler
from stages.distillation.teacher import Teacher
from stages.engine.cluster.mesh import Cluster
from stages.engine.data.batching import Group
from stages.engine.data.packing import PackedBatch, choose_packing
from stages.engine.data.top_tokens import TopTokensTable
from stages.engine.models.lora import Weights
from stages.engine.models.source import LoadedModel
from stages.engine.training.examples import show_example
from stages.engine.training.numbering import token_numbers
from stages.engine.training.task import Task


def make_task(
    examples: Sequence[Group],
    source: Teacher | TopTokensTable,
    config: DistillationConfig,
    student: LoadedModel,
    cluster: Cluster,
) -> Task[DistillationBatch]:
    """What is trained on; in an evaluation the responses are always those of the dataset.

    Args:
        examples: prompts, each with a response.
        source: a teacher that reads what the student learns from, or what one made of these examples before.
        config: of the stage.
        student: as it begins.
        cluster: of the student.
    """
    tokenizer, size = student.opened.tokenizer, config.train_micro_batch
    teacher, kept = (source, None) if isinstance(source, Teacher) else (None, source)
    loss = make_distillation_loss(student.frozen.graph, config, teacher and teacher.head, tokenizer.num_ids)
    packing = choose_packing(
        examples, batch_size=config.batch_size, micro_batch=size, num_devices=cluster.num_row_shares
    )
    sampler = None
    if config.on_policy is not None:
        prompts = [example.prompt for example in examples]
        sampler = StudentSampler(student, prompts, config, config.on_policy, cluster)

    def batches(rows: Sequence[int], update: int | None) -> list[DistillationBatch]:
        if sampler is not None and update is not None:
            return []
        numbered = update if config.adapter_dropout else None

        def make(part: PackedBatch) -> DistillationBatch:
            numbers = token_numbers(packing, part, numbered)
            return DistillationBatch(part.batch, numbers, kept and kept.take(rows, part))

        return [make(part) for part in packing.pack([examples[row] for row in rows])]

    def complete(
        weights: Weights, rows: Sequence[int], update: int | None, batches: Sequence[DistillationBatch]
    ) -> list[DistillationBatch]:
        if sampler is not None and update is not None:
            batches = sampler.draw(weights, rows, update)
        if teacher is None:
            return list(batches)
        return [batch._replace(teacher=teacher.read(batch.batch)) for batch in batches]

    def show(row: int) -> str:
        return show_example(row, examples[row], tokenizer)

    return Task(loss, len(examples), batches, lambda given: given.batch, show, complete)
