"""The counters that a training stage leaves."""

from pathlib import Path

from stages.contract import ARTIFACT_FILE, ReportArtifact
from stages.engine.training.report import write_training_report
from stages.engine.training.state import Counters


def test_a_report_holds_all_counters_but_the_seed(tmp_path: Path) -> None:
    write_training_report(tmp_path, Counters(step=5, updates=4, rows=20, tokens=600, seed=9))
    report = ReportArtifact.model_validate_json((tmp_path / ARTIFACT_FILE).read_text())
    assert report.metrics == {"step": 5, "updates": 4, "rows": 20, "tokens": 600}
    assert report.samples_file is None
