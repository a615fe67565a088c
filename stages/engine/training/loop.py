"""The loop around a training step: resume, record, save, stop."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing

from jaxtyping import Array, Float

from stages.contract import ProgressPoint, StageContext
from stages.engine.checkpoints.store import ProgressWriter, restore_newest
from stages.engine.cluster.agreement import Agreement
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.cluster.peak import memory_gib, peak_flops
from stages.engine.training.optimizer import UpdateRule
from stages.engine.training.state import TrainState, check_restored
from stages.errors import PreemptedError, UserError

logger = logging.getLogger(__name__)

Numbers = Mapping[str, Float[Array, ""] | float]
"""Metrics of one step by `group/name`; device values are read one step later."""

SHOWN = {"loss/total": "loss", "reward/mean": "reward", "throughput/tokens_per_second": "tokens_per_second"}
"""Metrics that a progress bar shows, and under which name."""

TOKENS = "throughput/tokens"
FLOPS = "throughput/flops"
SKIPPED = "optimizer/skipped_updates"

ShowBatch = Callable[[int], Iterable[str]]
"""From a number of steps done to what the next one trained on, in JSON lines."""


class Recorder:
    """Logs a step's numbers while the next step is already running, so that no step waits for a device value."""

    def __init__(
        self, context: StageContext, total: int, skipped: int, max_skipped: int, show: ShowBatch, cluster: Cluster
    ) -> None:
        self._context = context
        self._total = total
        self._skipped = skipped
        self._max_skipped = max_skipped
        self._show = show
        self._peak = cluster.num_devices * peak_flops()
        self._pending: tuple[int, Numbers, float] | None = None
        self._last = time.monotonic()

    def add(self, step: int, numbers: Numbers) -> None:
        """Takes a step's numbers, and logs those of the step before; raises as `flush`."""
        started = time.monotonic() - self._last
        self.flush()
        self._pending = (step, numbers, started)

    def flush(self) -> None:
        """Logs what is pending.

        Raises:
            UserError: more updates were skipped than may be.
        """
        if self._pending is None:
            return
        (step, pending, started), self._pending = self._pending, None
        before = time.monotonic()
        numbers = {name: float(value) for name, value in pending.items()}
        self._last = time.monotonic()
        # What its host needed, and the wait for its devices: the times of all steps add up to that of the run.
        seconds = started + self._last - before
        numbers["throughput/step_seconds"] = seconds
        numbers["throughput/tokens_per_second"] = numbers.pop(TOKENS) / seconds
        if FLOPS in numbers:
            numbers["throughput/share_of_peak"] = numbers.pop(FLOPS) / seconds / self._peak
        numbers["throughput/memory_gib"] = memory_gib()
        if numbers[SKIPPED] > self._skipped:
            self._skipped = int(numbers[SKIPPED])
            numbers = {name: value for name, value in numbers.items() if math.isfinite(value)}
            self._context.log_metrics(step, numbers)
            self._warn_of_skipped(step)
        else:
            self._context.log_metrics(step, numbers)
        shown = {short: numbers[name] for name, short in SHOWN.items() if name in numbers}
        self._context.beat(step, self._total, shown)

    def _warn_of_skipped(self, step: int) -> None:
        text = "".join(line + "\n" for line in self._show(step - 1))
        place = self._context.keep(f"skipped-{step:06d}.jsonl", text.encode())
        what = f"step {step}: loss or gradient is NaN or infinite; what it trained on is kept in {place}"
        if self._skipped > self._max_skipped:
            raise UserError(
                f"{what}. That is one update more than optimizer.max_skipped_updates = {self._max_skipped}: look at "
                "those rows, or lower optimizer.learning_rate or optimizer.max_grad_norm"
            )
        logger.warning("%s; the update is skipped, %d of at most %d", what, self._skipped, self._max_skipped)


def train(
    context: StageContext,
    start: TrainState,
    *,
    cluster: Cluster = ALONE,
    rule: UpdateRule,
    num_steps: int,
    save_every_steps: int,
    step: Callable[[int, TrainState], tuple[TrainState, Numbers]],
    show: ShowBatch,
    finished: Callable[[TrainState], bool] = lambda _: False,
) -> TrainState:
    """Runs `step` from the best committed point, or from `start`, to `num_steps`.

    A step overwrites the state that it is given.

    Args:
        context: of the stage.
        start: the state before the first step.
        cluster: whose processes all run this loop; a wish to stop that one of them has is heeded by all one step later.
        rule: of the updates, of which so many may be skipped.
        num_steps: steps in all.
        save_every_steps: steps between two saves; one is made too when the last is too long ago, and after the last
            step.
        step: from the number of steps done and the state to the next state and its numbers, which hold the tokens
            processed under `TOKENS`, all updates skipped so far under `SKIPPED`, and maybe operations under `FLOPS`.
        show: what a step trained on.
        finished: whether a state is that of a run that ends before `num_steps`.

    Raises:
        PreemptedError: asked to stop; the progress is saved.
        UserError: more updates were skipped than may be.
    """
    state = _resumed(context, start, cluster)
    done = state.counters.step
    recorder = Recorder(context, num_steps, int(state.optimizer.skipped), rule.max_skipped, show, cluster)
    stops, saves = Agreement(cluster), Agreement(cluster)
    context.beat(done, num_steps, {})
    # However it ends, what was saved last is committed first.
    with closing(ProgressWriter(context.progress)) as writer:
        ended = done == num_steps or finished(state)
        while not ended:
            try:
                state, numbers = step(done, state)
            except UserError:
                recorder.flush()
                raise
            done += 1
            recorder.add(done, numbers)
            stopping = stops.wished(context.should_stop())
            due = saves.wished(context.progress.save_due()) or done % save_every_steps == 0
            ended = done == num_steps or finished(state)
            if stopping or ended or due:
                recorder.flush()
                writer.save(done, state)
                saves = Agreement(cluster)
            if stopping and not ended:
                raise PreemptedError(f"stopped after step {done} of {num_steps}; progress is saved")
    return state


def _resumed(context: StageContext, start: TrainState, cluster: Cluster) -> TrainState:
    """The state of the best committed point, or the start."""
    seed = start.counters.seed

    def check(state: TrainState, point: ProgressPoint) -> None:
        check_restored(state.counters, point.step, seed)

    restored = restore_newest(context.progress, start, check, cluster)
    return start if restored is None else restored
