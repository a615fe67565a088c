"""Supervised training: from a task to the trained state and its outputs."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Generic

from stages.contract import StageContext
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.placement import divide_rows, of_this_process
from stages.engine.data.batching import Batch
from stages.engine.data.loader import batch_rows
from stages.engine.data.packing import filling
from stages.engine.models.flops import training_flops
from stages.engine.models.source import LoadedModel, write_model
from stages.engine.training.config import SupervisedConfig
from stages.engine.training.evaluate import Evaluation
from stages.engine.training.loop import FLOPS, SKIPPED, TOKENS, Numbers, train
from stages.engine.training.optimizer import UpdateRule, make_rule
from stages.engine.training.report import write_training_report
from stages.engine.training.state import TrainState, advance, final_weights, start_state
from stages.engine.training.step import BatchT, add_gradients, loss_means, make_gradient, make_update
from stages.engine.training.task import Task
from stages.errors import UserError


def dataset_names(context: StageContext, config: SupervisedConfig) -> tuple[str, ...]:
    """The inputs that rows are read from: what is trained on and, where the settings say so, what is evaluated on.

    Raises:
        UserError: a validation set is missing, or nothing reads it.
    """
    given = context.has_input("validation")
    if config.evaluate and not given:
        raise UserError("`evaluate` asks for evaluations during training: give this stage the input `validation`")
    if given and not config.evaluate:
        raise UserError("the input `validation` is given but not used: say when with `evaluate: {every_steps: N}`")
    return ("dataset", "validation") if given else ("dataset",)


def fit(
    context: StageContext,
    config: SupervisedConfig,
    model: LoadedModel,
    task: Task[BatchT],
    validation: Task[BatchT] | None = None,
    cluster: Cluster = ALONE,
) -> TrainState:
    """Trains the model's trained part on the task.

    Args:
        context: of the stage.
        config: its settings.
        model: as loaded for training, its base on the devices of the cluster.
        task: what to train on.
        validation: what to evaluate on, where the settings ask for it.
        cluster: whose devices share the work.

    Raises:
        PreemptedError: asked to stop; the progress is saved.
        UserError: the run diverged.
    """
    rule = make_rule(config.optimizer, config.num_steps)
    evaluation = None
    if config.evaluate and validation:
        base, size = model.frozen.base, config.batch_size
        evaluation = Evaluation(validation, base, config.evaluate, batch_size=size, cluster=cluster)
    steps = _Steps(config, model, task, rule, evaluation, cluster)
    keep_best = config.evaluate is not None and config.evaluate.keep == "best"
    return train(
        context,
        start_state(model.trained, rule, config.seed, cluster, keep_best=keep_best),
        cluster=cluster,
        rule=rule,
        num_steps=config.num_steps,
        save_every_steps=config.save_every_steps,
        step=steps.run,
        show=steps.show,
        finished=evaluation.finished if evaluation else lambda _: False,
    )


class _Steps(Generic[BatchT]):
    """The steps of a run: each is one update, and sometimes an evaluation after it."""

    def __init__(
        self,
        config: SupervisedConfig,
        model: LoadedModel,
        task: Task[BatchT],
        rule: UpdateRule,
        evaluation: Evaluation[BatchT] | None,
        cluster: Cluster,
    ) -> None:
        self._config = config
        self._model = model
        self._task = task
        self._evaluation = evaluation
        self._cluster = cluster
        self._gradient = make_gradient(task.loss, cluster)
        self._update = make_update(rule, cluster)

    def run(self, done: int, state: TrainState) -> tuple[TrainState, Numbers]:
        """From the number of steps done and the state to the next state and what the step says of itself."""
        rows, task, base = self._rows(done), self._task, self._model.frozen.base
        batches = task.complete(state.weights, rows, done, task.batches(rows, done))
        parts = (self._gradient(state.weights, base, divide_rows(self._cluster, batch)) for batch in batches)
        whole = reduce(add_gradients, parts)
        applied = self._update(state.weights, state.optimizer, whole)
        numbers = {
            **loss_means([whole.loss]),
            "optimizer/grad_norm": applied.grad_norm,
            "optimizer/learning_rate": applied.learning_rate,
            SKIPPED: applied.skipped,
            **_sizes(self._model, [task.tokens_of(batch) for batch in batches], len(rows)),
        }
        num_targets = int(numbers["data/target_tokens"])
        counters = advance(state.counters, updates=1, rows=len(rows), tokens=num_targets)
        state = TrainState(applied.weights, applied.optimizer, state.best, counters)
        if self._evaluation and self._evaluation.due(done + 1, self._config.num_steps):
            state, found = self._evaluation.run(state)
            numbers |= found
        return state, numbers

    def show(self, done: int) -> Iterable[str]:
        """The rows of the step after so many, in words."""
        return map(self._task.show, self._rows(done))

    def _rows(self, done: int) -> list[int]:
        return batch_rows(self._task.num_rows, self._config.batch_size, self._config.seed, done)


def write_trained(
    context: StageContext,
    config: SupervisedConfig,
    model: LoadedModel,
    end: TrainState,
    cluster: Cluster = ALONE,
    rows: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Writes the outputs `checkpoint` and `report`, which has what is said of the rows too."""
    weights = of_this_process(cluster, final_weights(end))
    write_model(context.output_dir("checkpoint"), model, weights, config.model)
    write_training_report(context.output_dir("report"), end, rows)


def _sizes(model: LoadedModel, batches: Sequence[Batch], num_examples: int) -> dict[str, float]:
    """Of an update: tokens read and learnt, the share of the room for tokens that stayed empty, and operations."""
    found, arch = filling(batches), model.opened.checkpoint.arch
    sizes = {TOKENS: found.inputs, "data/target_tokens": found.targets, "data/padding": found.padding_share}
    sizes["data/tokens_per_example"] = found.inputs / num_examples
    sizes[FLOPS] = sum(training_flops(arch, batch, frozen=model.lora is not None) for batch in batches)
    return {name: float(size) for name, size in sizes.items()}
