"""What a report shows, gathered from a run's record and the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.runs import RunRecord, RunStage
from stages.store.segments import MetricRow, read_metrics
from tasks.report.charts import Series
from tasks.report.evaluations import Evaluation, read_evaluations

FIRST_GROUPS = ("reward", "loss", "rollout", "optimizer")
"""Groups of metrics in the order of interest; others follow by name."""
SAMPLES_SHOWN = 8
MAX_POINTS = 400


@dataclass(frozen=True)
class Curves:
    """The training curves of one stage."""

    stage: RunStage
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Comparison:
    """The samples `ids` of one data set, as several evaluations answered them."""

    dataset: str
    evaluations: tuple[Evaluation, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Content:
    """Everything on the page."""

    run: RunRecord
    evaluations: tuple[Evaluation, ...]
    curves: tuple[Curves, ...]
    comparisons: tuple[Comparison, ...]


def gather(store: ConditionalStore, run: RunRecord, cache: Path) -> Content:
    """Read what a run committed; stages without a result are left out.

    Raises:
        StorageError: the store cannot be read.
    """
    evaluations = read_evaluations(store, run.stages, cache)
    curves = [Curves(stage, _read_series(store, stage)) for stage in run.stages if stage.key is not None]
    return Content(
        run=run,
        evaluations=tuple(evaluations),
        curves=tuple(curve for curve in curves if curve.series),
        comparisons=compare_samples(evaluations),
    )


def _read_series(store: ConditionalStore, stage: RunStage) -> tuple[Series, ...]:
    assert stage.key is not None
    return series_of(read_metrics(store, StagePaths(stage.kind, stage.key)))


def series_of(rows: list[MetricRow]) -> tuple[Series, ...]:
    """One series for each metric that has at least two points, the most interesting first, thinned to 400 points."""
    names = sorted({name for row in rows for name in row.numbers}, key=_interest)
    series: list[Series] = []
    for name in names:
        points = [(row.step, row.numbers[name]) for row in rows if name in row.numbers]
        points = points[:: -(-len(points) // MAX_POINTS)]
        if len(points) > 1:
            series.append(Series(name, tuple(step for step, _ in points), tuple(value for _, value in points)))
    return tuple(series)


def _interest(name: str) -> tuple[int, str]:
    group = name.partition("/")[0]
    return (FIRST_GROUPS.index(group) if group in FIRST_GROUPS else len(FIRST_GROUPS), name)


def compare_samples(evaluations: Sequence[Evaluation]) -> tuple[Comparison, ...]:
    """For each data set its first samples by id, whatever their outcome, with the response of every evaluation."""
    datasets: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        if evaluation.report.samples:
            datasets.setdefault(evaluation.dataset, []).append(evaluation)
    return tuple(
        Comparison(dataset, tuple(group), tuple(sorted(group[0].report.samples)[:SAMPLES_SHOWN]))
        for dataset, group in datasets.items()
    )
