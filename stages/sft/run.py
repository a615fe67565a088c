"""Supervised fine-tuning, top to bottom."""

from collections.abc import Callable, Sequence
from functools import reduce

import jax.numpy as jnp
import numpy as np

from stages.contract import StageContext
from stages.engine.cluster.mesh import all_devices
from stages.engine.cluster.placement import divide_rows, of_this_process
from stages.engine.data.batching import Batch, Group
from stages.engine.data.chat import make_examples
from stages.engine.data.layout import Layout, choose_layout, shared_prefix
from stages.engine.data.loader import batch_rows
from stages.engine.data.records import read_dataset
from stages.engine.models.dropout import NumberedBatch, TokenNumbers
from stages.engine.models.opened import open_model
from stages.engine.models.source import check_length, load_trained_model, write_model
from stages.engine.training.loop import TOKENS, Numbers, train
from stages.engine.training.optimizer import make_optimizer, make_schedule
from stages.engine.training.report import write_training_report
from stages.engine.training.state import TrainState, advance, start_state
from stages.engine.training.step import add_gradients, make_gradient, make_update
from stages.sft.config import SftConfig
from stages.sft.loss import make_sft_loss


def run(context: StageContext, config: SftConfig) -> None:
    """Trains the input model's adapter on the responses of the dataset."""
    opened = open_model(context)
    examples = make_examples(read_dataset(context.input_dir("dataset")), opened.chat, config.max_tokens)
    check_length(opened, max(len(prompt) + len(response) for prompt, (response,) in examples))
    cluster = all_devices(config.mesh)
    model = load_trained_model(opened, config.model, config.seed, cluster)
    optimizer = make_optimizer(config.optimizer, config.num_steps)
    schedule = make_schedule(config.optimizer, config.num_steps)
    loss = make_sft_loss(model.frozen.graph, config.model.remat, config.adapter_dropout, config.seed)
    gradient = make_gradient(loss, cluster)
    update = make_update(optimizer, cluster)
    layout = choose_layout(
        [example.prompt for example in examples],
        batch_size=config.batch_size,
        micro_batch=config.train_micro_batch,
        group_size=1,
        max_response=max(len(response) for example in examples for response in example.responses),
        num_devices=cluster.num_row_shares,
    )

    number = _make_numbering(layout, examples, config.batch_size) if config.adapter_dropout else lambda batch, *_: batch

    def step(done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        rows = batch_rows(len(examples), config.batch_size, config.seed, done)
        chosen = [examples[row] for row in rows]
        parts = layout.parts(len(chosen))
        batches = [layout.pack(chosen[part]) for part in parts]
        given = [number(batch, part, done) for batch, part in zip(batches, parts, strict=True)]
        gradients = (gradient(state.weights, model.frozen.base, divide_rows(cluster, batch)) for batch in given)
        whole = reduce(add_gradients, gradients)
        applied = update(state.weights, state.optimizer, whole)
        num_targets_used = sum(int(np.sum(batch.target_mask)) for batch in batches)
        counters = advance(state.counters, updates=1, rows=len(rows), tokens=num_targets_used)
        numbers: Numbers = {
            "loss/nll": whole.loss.total / whole.loss.denominator,
            "optimizer/grad_norm": applied.grad_norm,
            "optimizer/learning_rate": jnp.asarray(schedule(done)),
            "data/target_tokens": num_targets_used,
            TOKENS: sum(int(np.sum(batch.segment_ids != 0)) for batch in batches),
        }
        return TrainState(applied.weights, applied.optimizer, counters), numbers

    end = train(
        context,
        start_state(model.adapter, optimizer, config.seed, cluster),
        cluster=cluster,
        num_steps=config.num_steps,
        save_every_steps=config.save_every_steps,
        step=step,
    )
    write_model(context.output_dir("checkpoint"), model.base, of_this_process(cluster, end.weights), config.model)
    write_training_report(context.output_dir("report"), end.counters)


def _make_numbering(
    layout: Layout, examples: Sequence[Group], num_examples: int
) -> Callable[[Batch, slice, int], NumberedBatch]:
    """From a part of an update's examples, packed, to the batch with what tells its tokens apart from all others."""
    num_shared = shared_prefix([example.prompt for example in examples])

    def number(batch: Batch, part: slice, update: int) -> NumberedBatch:
        owners = layout.owners(part, num_examples, batch, num_shared)
        return NumberedBatch(batch, TokenNumbers(np.full(len(owners), update, np.int32), owners))

    return number
