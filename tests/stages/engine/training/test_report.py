"""The counters that a training stage leaves."""

from pathlib import Path

import jax.numpy as jnp

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.training.report import write_training_report
from stages.engine.training.state import Best, Counters, OptimizerState, TrainState

COUNTERS = Counters(step=5, updates=4, rows=20, tokens=600, seed=9)
OPTIMIZER = OptimizerState((), {}, jnp.int32(3), jnp.int32(1))


def report(folder: Path, best: Best) -> ReportArtifact:
    write_training_report(folder, TrainState({}, OPTIMIZER, best, COUNTERS))
    return ReportArtifact.model_validate_json((folder / ARTIFACT_FILE).read_text())


def test_a_report_holds_all_counters_but_the_seed(tmp_path: Path) -> None:
    found = report(tmp_path, Best(float("inf"), 0, 0, {}))
    assert found.metrics == {"step": 5, "updates": 4, "rows": 20, "tokens": 600, "skipped_updates": 1}
    assert found.samples_file is None


def test_a_report_says_when_the_loss_on_other_rows_was_lowest(tmp_path: Path) -> None:
    metrics = report(tmp_path, Best(0.25, 3, 2, {})).metrics
    assert (metrics["validation_loss"], metrics["best_step"]) == (0.25, 3)
