"""The evaluations of a run side by side: rates with intervals, and paired differences on the same data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.actions.gate_eval import metric_difference
from pipelines.actions.reports import Report, read_report
from stages.contract import StageInput
from stages.statistics import Interval, mean_interval
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import read_manifest
from stages.store.runs import RunStage

METRIC = "accuracy"
"""What intervals and differences are about; the strict rate stands beside it."""


@dataclass(frozen=True)
class Difference:
    """`metric` here minus that of the evaluation `other`."""

    other: str
    interval: Interval


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the run.

    Attributes:
        stage: its name.
        model: what was evaluated, as the pipeline writes it.
        dataset: on what.
        report: its metrics and samples.
        accuracy: mean with its 95% interval; None where it has no samples of it.
        from_first: difference to the first evaluation on the same data set.
        from_previous: difference to the one before on the same data set, where that is not the first.
    """

    stage: str
    model: str
    dataset: str
    report: Report
    accuracy: Interval | None
    from_first: Difference | None
    from_previous: Difference | None


def read_evaluations(store: ConditionalStore, stages: Sequence[RunStage], cache: Path) -> list[Evaluation]:
    """Every committed evaluation of a run, in its order.

    Raises:
        StorageError: a report cannot be read.
    """
    found: list[Evaluation] = []
    datasets: dict[str, list[Evaluation]] = {}
    for stage in stages:
        if stage.kind != "evaluation" or stage.key is None:
            continue
        manifest = read_manifest(store, StagePaths(stage.kind, stage.key))
        if manifest is None:
            continue
        earlier = datasets.setdefault(_identity(manifest.inputs["dataset"]), [])
        evaluation = _evaluation(stage, read_report(store, manifest, "report", cache), earlier)
        earlier.append(evaluation)
        found.append(evaluation)
    return found


def _evaluation(stage: RunStage, report: Report, earlier: Sequence[Evaluation]) -> Evaluation:
    column = report.column(METRIC)
    return Evaluation(
        stage=stage.id,
        model=stage.inputs.get("model", ""),
        dataset=stage.inputs.get("dataset", ""),
        report=report,
        accuracy=mean_interval(list(column.values())) if column else None,
        from_first=_difference(report, earlier[0]) if column and earlier else None,
        from_previous=_difference(report, earlier[-1]) if column and len(earlier) > 1 else None,
    )


def _difference(report: Report, other: Evaluation) -> Difference | None:
    if report.samples.keys() != other.report.samples.keys() or not other.report.column(METRIC):
        return None
    return Difference(other.stage, metric_difference(report, other.report, METRIC))


def _identity(dataset: StageInput) -> str:
    return f"{dataset.key}/{dataset.output}" if dataset.kind == "stored" else dataset.source.digest
