"""Evaluation during training: the loss on other rows, and what follows from it for the run."""

import logging
import math
from functools import reduce
from typing import Generic

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.placement import divide_rows
from stages.engine.cluster.programs import compiled
from stages.engine.models.transformer import Cells
from stages.engine.training.config import EvaluateConfig
from stages.engine.training.state import Best, TrainState, evaluated_weights
from stages.engine.training.step import BatchT, add_losses, loss_means
from stages.engine.training.task import Task
from stages.errors import UserError

logger = logging.getLogger(__name__)


class Evaluation(Generic[BatchT]):
    """The loss on a task's rows, all of them, as one sum over one denominator."""

    def __init__(
        self, task: Task[BatchT], base: Cells, config: EvaluateConfig, *, batch_size: int, cluster: Cluster = ALONE
    ) -> None:
        """Compiles nothing yet.

        Args:
            task: whose rows and loss.
            base: of the trained model.
            config: when to evaluate, and what follows from it.
            batch_size: rows that are packed together.
            cluster: whose devices share the rows.
        """
        self._config = config
        self._base = base
        self._cluster = cluster
        self._task = task
        self._batch_size = batch_size
        self._loss = compiled(cluster, task.loss)

    def due(self, done: int, num_steps: int) -> bool:
        """Whether it is time after so many steps."""
        return done == num_steps or done % self._config.every_steps == 0

    def run(self, state: TrainState) -> tuple[TrainState, dict[str, Float[Array, ""]]]:
        """Evaluates the weights that stand for a state: the state with what was found, and metrics `validation/…`.

        Raises:
            UserError: the loss is no finite number.
        """
        weights, size, task = evaluated_weights(state), self._batch_size, self._task
        chunks = (range(start, min(start + size, task.num_rows)) for start in range(0, task.num_rows, size))
        completed = (task.complete(weights, chunk, None, task.batches(chunk, None)) for chunk in chunks)
        batches = (divide_rows(self._cluster, batch) for batches in completed for batch in batches)
        means = loss_means([reduce(add_losses, (self._loss(weights, self._base, batch) for batch in batches))])
        # What happens next depends on it, so this waits for the devices.
        loss = float(means["loss/total"])
        if not math.isfinite(loss):
            raise UserError(f"step {state.counters.step}: the loss on `validation` is {loss}: look at the steps before")
        found = {f"validation/{name.removeprefix('loss/')}": value for name, value in means.items()}
        return state._replace(best=self._compare(state, loss)), found

    def finished(self, state: TrainState) -> bool:
        """Whether the loss has not become lower for too long."""
        return self._config.patience is not None and state.best.since >= self._config.patience

    def _compare(self, state: TrainState, loss: float) -> Best:
        best = state.best
        if loss < best.loss - self._config.min_improvement or not best.step:
            kept = jax.tree.map(jnp.copy, evaluated_weights(state)) if self._config.keep == "best" else {}
            return Best(loss, state.counters.step, 0, kept)
        if self.finished(state._replace(best=best._replace(since=best.since + 1))):
            logger.info("no lower loss on `validation` since step %d; the training ends", best.step)
        return best._replace(since=best.since + 1)
