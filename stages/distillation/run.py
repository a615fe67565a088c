"""Distillation, top to bottom."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from stages.contract import StageContext
from stages.distillation.config import DistillationConfig
from stages.distillation.loss import with_teacher
from stages.distillation.task import make_task
from stages.distillation.teacher import check_source, load_teacher, make_clusters, open_teacher
from stages.engine.data.batching import Group, group_length
from stages.engine.data.top_tokens import TopTokensTable, open_top_tokens
from stages.engine.models.opened import open_model
from stages.engine.models.source import check_length, load_trained_model
from stages.engine.training.examples import read_examples
from stages.engine.training.supervised import dataset_names, fit, write_trained


def run(context: StageContext, config: DistillationConfig) -> None:
    """Trains the input model on what a teacher makes of responses."""
    folders = {name: context.input_dir(name) for name in dataset_names(context, config)}
    check_source(context, config, folders)
    opened = open_model(context)
    teacher_opened = open_teacher(context, opened)
    sets = [read_examples(folder, opened, config.max_tokens).groups for folder in folders.values()]
    for model in filter(None, (opened, teacher_opened)):
        check_length(model, _longest(sets, config))
    kept = [] if teacher_opened else _open_kept(folders.values(), sets, config)
    cluster, of_teacher = make_clusters(config.mesh, config.teacher)
    student = load_trained_model(opened, config.model, config.seed, cluster)
    teacher = teacher_opened and load_teacher(teacher_opened, config.temperature, of_teacher, cluster)
    sources = [teacher] * len(sets) if teacher else kept
    tasks = [make_task(*pair, config, student, cluster) for pair in zip(sets, sources, strict=True)]
    base = with_teacher(student.frozen.base, teacher and teacher.matrix)
    with_both = replace(student, frozen=student.frozen._replace(base=base))
    end = fit(context, config, with_both, tasks[0], tasks[1] if config.evaluate else None, cluster)
    write_trained(context, config, student, end, cluster)


def _open_kept(
    folders: Iterable[Path], sets: Sequence[Sequence[Group]], config: DistillationConfig
) -> list[TopTokensTable]:
    """What a teacher made of each dataset before."""
    return [open_top_tokens(*pair, config.temperature) for pair in zip(folders, sets, strict=True)]


def _longest(sets: Sequence[Sequence[Group]], config: DistillationConfig) -> int:
    """Tokens of the longest prompt and response together."""
    longest = max(group_length(example) for examples in sets for example in examples)
    if config.on_policy is None:
        return longest
    return max(longest, max(len(group.prompt) for group in sets[0]) + config.on_policy.sampling.max_response_tokens)
