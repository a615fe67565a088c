"""Supervised fine-tuning, top to bottom."""

from collections.abc import Sequence

from stages.contract import StageContext
from stages.engine.cluster.mesh import all_devices
from stages.engine.data.batching import Batch, Group, group_length
from stages.engine.data.examples import Examples
from stages.engine.data.packing import Packing, choose_packing
from stages.engine.data.tokenizer import Tokenizer
from stages.engine.models.dropout import NumberedBatch
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import check_length, load_trained_model
from stages.engine.training.examples import read_examples, show_example
from stages.engine.training.numbering import token_numbers
from stages.engine.training.step import LossFunction
from stages.engine.training.supervised import dataset_names, fit, write_trained
from stages.engine.training.task import Task
from stages.sft.config import SftConfig
from stages.sft.loss import make_sft_loss


def run(context: StageContext, config: SftConfig) -> None:
    """Trains the input model on the responses of the dataset."""
    names = dataset_names(context, config)
    opened = open_model(context)
    sets = [_read(context, name, opened, config) for name in names]
    check_length(opened, max(group_length(group) for examples in sets for group in examples.groups))
    cluster = all_devices(config.mesh)
    model = load_trained_model(opened, config.model, config.seed, cluster)
    loss = make_sft_loss(model.frozen.graph, config.model.remat, config.adapter_dropout, config.seed)
    tasks = [_make_task(examples.groups, config, loss, opened.tokenizer, cluster.num_row_shares) for examples in sets]
    end = fit(context, config, model, tasks[0], tasks[1] if config.evaluate else None, cluster)
    rows = {"dropped_rows": sets[0].num_dropped, "truncated_rows": sets[0].num_truncated}
    write_trained(context, config, model, end, cluster, rows)


def _read(context: StageContext, name: str, opened: OpenedModel, config: SftConfig) -> Examples:
    return read_examples(context.input_dir(name), opened, config.max_tokens, config.learn, config.too_long)


def _make_task(
    examples: Sequence[Group],
    config: SftConfig,
    loss: LossFunction[Batch | NumberedBatch],
    tokenizer: Tokenizer,
    num_devices: int,
) -> Task[Batch | NumberedBatch]:
    packing = choose_packing(
        examples, batch_size=config.batch_size, micro_batch=config.train_micro_batch, num_devices=num_devices
    )

    def batches(rows: Sequence[int], update: int | None) -> list[Batch | NumberedBatch]:
        numbered = update if config.adapter_dropout else None
        return _pack(packing, [examples[row] for row in rows], numbered)

    def tokens_of(given: Batch | NumberedBatch) -> Batch:
        return given.batch if isinstance(given, NumberedBatch) else given

    return Task(loss, len(examples), batches, tokens_of, lambda row: show_example(row, examples[row], tokenizer))


def _pack(packing: Packing, examples: Sequence[Group], update: int | None) -> list[Batch | NumberedBatch]:
    """Micro-batches; with the number of the update, their tokens are numbered for dropout."""
    packed = packing.pack(examples)
    numbered = ((part.batch, token_numbers(packing, part, update)) for part in packed)
    return [batch if numbers is None else NumberedBatch(batch, numbers) for batch, numbers in numbered]
