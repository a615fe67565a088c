"""The report that every training stage leaves: its counters."""

from pathlib import Path

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.training.state import Counters


def write_training_report(folder: Path, counters: Counters) -> None:
    """Writes steps, updates, rows and target tokens. Losses are in the metrics, step by step."""
    metrics = {name: float(value) for name, value in counters._asdict().items() if name != "seed"}
    (folder / ARTIFACT_FILE).write_text(ReportArtifact(metrics=metrics).model_dump_json())
