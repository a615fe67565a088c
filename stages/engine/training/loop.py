"""The loop around a training step: resume, record, save, stop."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from jaxtyping import Array, Float

from stages.contract import ProgressPoint, StageContext
from stages.engine.checkpoints.store import ProgressWriter, restore_newest
from stages.engine.cluster.agreement import Agreement
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.training.state import TrainState, check_restored
from stages.errors import PreemptedError

Numbers = Mapping[str, Float[Array, ""] | float]
"""Metrics of one step by `group/name`; device values are read one step later."""

SHOWN = {"loss/nll": "loss", "reward/mean": "reward", "throughput/tokens_per_second": "tokens_per_second"}
"""Metrics that a progress bar shows, and under which name."""

TOKENS = "throughput/tokens"


class Recorder:
    """Logs a step's numbers while the next step is already running, so that no step waits for a device value."""

    def __init__(self, context: StageContext, total: int) -> None:
        self._context = context
        self._total = total
        self._pending: tuple[int, Numbers] | None = None
        self._last = time.monotonic()

    def add(self, step: int, numbers: Numbers) -> None:
        """Takes a step's numbers, and logs those of the step before."""
        self.flush()
        self._pending = (step, numbers)

    def flush(self) -> None:
        """Logs what is pending."""
        if self._pending is None:
            return
        (step, pending), self._pending = self._pending, None
        numbers = {name: float(value) for name, value in pending.items()}
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        numbers["throughput/step_seconds"] = seconds
        numbers["throughput/tokens_per_second"] = numbers.pop(TOKENS) / seconds
        self._context.log_metrics(step, numbers)
        shown = {short: numbers[name] for name, short in SHOWN.items() if name in numbers}
        self._context.beat(step, self._total, shown)


def train(
    context: StageContext,
    start: TrainState,
    *,
    cluster: Cluster = ALONE,
    num_steps: int,
    save_every_steps: int,
    step: Callable[[int, TrainState], tuple[TrainState, Numbers]],
) -> TrainState:
    """Runs `step` from the best committed point, or from `start`, to `num_steps`.

    Args:
        context: of the stage.
        start: the state before the first step.
        cluster: whose processes all run this loop; a wish to stop that one of them has is heeded by all one step later.
        num_steps: steps in all.
        save_every_steps: steps between two saves; one is made too when the last is too long ago, and after the last
            step.
        step: from the number of steps done and the state to the next state and its numbers, which hold the tokens
            processed under `TOKENS`.

    Raises:
        PreemptedError: asked to stop; the progress is saved.
    """
    seed = start.counters.seed

    def check(state: TrainState, point: ProgressPoint) -> None:
        check_restored(state.counters, point.step, seed)

    restored = restore_newest(context.progress, start, check, cluster)
    state = start if restored is None else restored
    recorder, done = Recorder(context, num_steps), state.counters.step
    stops, saves = Agreement(cluster), Agreement(cluster)
    context.beat(done, num_steps, {})
    # However it ends, what was saved last is committed first.
    with closing(ProgressWriter(context.progress)) as writer:
        while done < num_steps:
            state, numbers = step(done, state)
            done += 1
            recorder.add(done, numbers)
            stopping = stops.wished(context.should_stop())
            due = saves.wished(context.progress.save_due()) or done % save_every_steps == 0
            if stopping or done == num_steps or due:
                recorder.flush()
                writer.save(done, state)
                saves = Agreement(cluster)
            if stopping and done < num_steps:
                raise PreemptedError(f"stopped after step {done} of {num_steps}; progress is saved")
    return state
