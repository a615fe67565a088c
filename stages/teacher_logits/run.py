"""A teacher's likeliest tokens, top to bottom."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float32, Int, Int32

from stages.contract import ARTIFACT_FILE, ProgressPoint, StageContext, TopTokensInfo
from stages.engine.checkpoints.store import ProgressWriter, restore_newest
from stages.engine.cluster.axes import constrain
from stages.engine.cluster.mesh import Cluster, all_devices
from stages.engine.cluster.placement import divide_rows
from stages.engine.cluster.programs import compiled
from stages.engine.data.batching import Batch, Group, group_length
from stages.engine.data.packing import choose_packing
from stages.engine.data.records import read_descriptor
from stages.engine.data.top_tokens import TopTokensBatch, TopTokensTable, empty_table
from stages.engine.models.axes import place_weights
from stages.engine.models.heads import outputs_at_targets
from stages.engine.models.lora import Weights, bind
from stages.engine.models.opened import open_model
from stages.engine.models.source import LoadedModel, check_length, load_model
from stages.engine.models.transformer import Cells
from stages.engine.objectives.distillation import TopTokens, top_tokens
from stages.engine.training.examples import read_examples
from stages.errors import PreemptedError, UserError
from stages.teacher_logits.config import TeacherLogitsConfig

ROWS_AT_ONCE = 256
"""So many rows are packed together; a stage can be resumed after each."""


class Scored(NamedTuple):
    """What is saved: tables with as many rows as there are targets, of which the first are filled.

    Attributes:
        ids: see `TopTokensTable`.
        logprobs: see `TopTokensTable`.
        done: rows of the dataset that are scored.
    """

    ids: Int32[np.ndarray, "N K"]
    logprobs: Float32[np.ndarray, "N K+1"]
    done: Int32[np.ndarray, ""] | Int[Array, ""]


def run(context: StageContext, config: TeacherLogitsConfig) -> None:
    """Writes the dataset with what the teacher makes of its responses."""
    opened = open_model(context, "teacher")
    if config.num_top >= opened.tokenizer.num_ids:
        raise UserError(
            f"num_top is {config.num_top}, but the teacher has {opened.tokenizer.num_ids} tokens; keep fewer, or let "
            "`distillation` run the teacher itself, which compares all of them"
        )
    folder = context.input_dir("dataset")
    groups = read_examples(folder, opened, config.max_tokens).groups
    check_length(opened, max(map(group_length, groups)))
    cluster = all_devices(config.mesh)
    table = _score(context, config, load_model(opened, cluster), groups, cluster)
    output, descriptor = context.output_dir("dataset"), read_descriptor(folder)
    shutil.copyfile(folder / descriptor.file, output / descriptor.file)
    table.save(output, groups)
    info = TopTokensInfo(num_top=config.num_top, temperature=config.temperature)
    (output / ARTIFACT_FILE).write_text(descriptor.model_copy(update={"top_tokens": info}).model_dump_json() + "\n")


def _score(
    context: StageContext, config: TeacherLogitsConfig, teacher: LoadedModel, groups: Sequence[Group], cluster: Cluster
) -> TopTokensTable:
    read = _make_reader(config, teacher, cluster)
    packing = choose_packing(
        groups, batch_size=ROWS_AT_ONCE, micro_batch=config.micro_batch, num_devices=cluster.num_row_shares
    )
    table = empty_table(groups, config.num_top)
    start = Scored(table.ids, table.logprobs, np.zeros((), np.int32))
    restored = restore_newest(context.progress, start, _check_done)
    done = 0
    if restored is not None:
        done = int(restored.done)
        table = TopTokensTable(np.array(restored.ids), np.array(restored.logprobs), table.starts)
    context.beat(done, len(groups), {})
    with closing(ProgressWriter(context.progress)) as writer:
        while done < len(groups):
            rows = range(done, min(done + ROWS_AT_ONCE, len(groups)))
            batches = packing.pack([groups[row] for row in rows])
            found = [read(packed.batch) for packed in batches]
            for packed, top in zip(batches, found, strict=True):
                table.put(rows, packed, TopTokensBatch(np.asarray(top.ids), np.asarray(top.logprobs)))
            done = rows.stop
            context.beat(done, len(groups), {})
            stopping = context.should_stop() and done < len(groups)
            if stopping or context.progress.save_due():
                # What is filled further on while this is written will be filled again with the same.
                writer.save(done, Scored(table.ids, table.logprobs, np.array(done, np.int32)))
            if stopping:
                raise PreemptedError(f"stopped after {done} of {len(groups)} rows; progress is saved")
    return table


def _make_reader(config: TeacherLogitsConfig, teacher: LoadedModel, cluster: Cluster) -> Callable[[Batch], TopTokens]:
    graph, base = teacher.frozen
    adapter, num_ids = place_weights(cluster, teacher.trained), teacher.opened.tokenizer.num_ids

    def read(adapter: Weights, base: Cells, batch: Batch) -> TopTokens:
        outputs = outputs_at_targets(bind(graph, adapter, base), batch, config.temperature)
        found = top_tokens(outputs, config.num_top, num_ids)
        return TopTokens(*(constrain(part, "rows", None, None) for part in found))

    program = compiled(cluster, read)
    return lambda batch: program(adapter, base, divide_rows(cluster, batch))


def _check_done(state: Scored, point: ProgressPoint) -> None:
    if int(state.done) != point.step:
        raise UserError(f"the saved step {point.step} holds {int(state.done)} scored rows")
