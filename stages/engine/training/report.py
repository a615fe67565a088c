"""The report that every training stage leaves: how far it went and what it found."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.training.state import TrainState


def write_training_report(folder: Path, end: TrainState, rows: Mapping[str, int] = MappingProxyType({})) -> None:
    """Writes steps, updates, rows and target tokens; where it was evaluated, the lowest loss and its step.

    What is said of the dataset's `rows` is added.

    Losses are in the metrics, step by step.
    """
    metrics = {name: float(value) for name, value in {**rows, **end.counters._asdict()}.items() if name != "seed"}
    metrics["skipped_updates"] = float(end.optimizer.skipped)
    if end.best.step:
        metrics |= {"validation_loss": float(end.best.loss), "best_step": float(end.best.step)}
    (folder / ARTIFACT_FILE).write_text(ReportArtifact(metrics=metrics).model_dump_json())
