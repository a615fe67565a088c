# pyright: reportMissingImports=false
"""One tracker as its process writes to it: TensorBoard, Weights & Biases, MLflow.

Their packages are imported here only, in a process that a stage does not wait for.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from stages.engine.metrics.event_file import EventFile
from stages.engine.metrics.tracked_run import RunOutcome, TrackedRun
from stages.trackers import MlflowTracker, TensorboardTracker, WandbTracker


class Sink(Protocol):
    """Where rows of one run go."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Show the numbers of a step."""
        ...

    def close(self, outcome: RunOutcome) -> None:
        """Send what is left, and say how the attempt ended."""
        ...


def open_sink(run: TrackedRun) -> Sink:
    """Opens the run's tracker.

    Raises:
        ModuleNotFoundError: its package is not installed.
    """
    match run.tracker:
        case TensorboardTracker() as tracker:
            return TensorboardSink(run, tracker)
        case WandbTracker() as tracker:
            return WandbSink(run, tracker)
        case MlflowTracker() as tracker:
            return MlflowSink(run, tracker)


class TensorboardSink:
    """A folder for each run, with an event file for each attempt."""

    def __init__(self, run: TrackedRun, tracker: TensorboardTracker) -> None:
        folder = Path(tracker.folder) / run.pipeline / f"{run.stage}-{run.key[:8]}"
        # Readers take the files of a folder in the order of their names.
        self._file = EventFile(folder / f"events.out.tfevents.{run.attempt}")

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._file.add(step, numbers)

    def close(self, outcome: RunOutcome) -> None:
        """An event file has no place for how a run ended."""
        self._file.close()


class WandbSink:
    """A run whose id comes from the stage's key, in the group of its pipeline."""

    def __init__(self, run: TrackedRun, tracker: WandbTracker) -> None:
        import wandb

        self._run = wandb.init(
            project=tracker.project,
            entity=tracker.entity,
            id=run.run_id,
            name=run.stage,
            group=run.pipeline,
            job_type=run.kind,
            config=json.loads(run.config),
            dir=tracker.folder,
            mode=tracker.mode,
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Steps that an earlier attempt has sent are there already: a run that goes on repeats them exactly."""
        if step >= self._run.step:
            self._run.log(dict(numbers), step=step)

    def close(self, outcome: RunOutcome) -> None:
        self._run.finish(exit_code=0 if outcome == "done" else 1)


class MlflowSink:
    """A run that is found again by the stage's key, which it has as a tag."""

    STATUS: Mapping[RunOutcome, str] = {"done": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

    def __init__(self, run: TrackedRun, tracker: MlflowTracker) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client = MlflowClient(tracker.uri)
        found = self._client.get_experiment_by_name(tracker.experiment)
        experiment = self._client.create_experiment(tracker.experiment) if found is None else found.experiment_id
        earlier = self._client.search_runs([experiment], f"tags.`temper.key` = '{run.key}'", max_results=1)
        self._run_id = earlier[0].info.run_id if earlier else self._create(run, experiment)
        self._client.update_run(self._run_id, status="RUNNING")

    def _create(self, run: TrackedRun, experiment: str) -> str:
        from mlflow.entities import Param

        tags = {"temper.key": run.key, "temper.pipeline": run.pipeline, "temper.kind": run.kind}
        run_id = self._client.create_run(experiment, run_name=run.stage, tags=tags).info.run_id
        settings = _flat("", json.loads(run.config))
        self._client.log_batch(run_id, params=[Param(name, value) for name, value in settings.items()])
        return run_id

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        moment = int(time.time() * 1000)
        metrics = [self._metric(name, value, moment, step) for name, value in numbers.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self, outcome: RunOutcome) -> None:
        self._client.set_terminated(self._run_id, status=self.STATUS[outcome])


def _flat(prefix: str, value: JsonValue) -> dict[str, str]:
    """Settings by dotted name, as text."""
    if not isinstance(value, dict):
        return {prefix: str(value)}
    parts = (_flat(f"{prefix}.{name}" if prefix else name, part) for name, part in value.items())
    return {name: text for part in parts for name, text in part.items()}
