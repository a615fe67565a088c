"""The report of an evaluation: metrics with their intervals, and the record of each sample."""

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from stages.contract import ARTIFACT_FILE, ReportArtifact, StageContext
from stages.statistics import mean_interval

SAMPLES_FILE = "samples.jsonl"

Sample = Mapping[str, JsonValue]
"""A row's `id`, and what was found out about it."""


def write_report(
    context: StageContext, samples: Sequence[Sample], means: Mapping[str, str], others: Mapping[str, float]
) -> None:
    """Writes the output `report`, and logs its metrics.

    Args:
        context: of the stage.
        samples: one for each row, with an `id`.
        means: each metric that is a mean over samples, and the field that it is the mean of.
        others: metrics that are none.
    """
    intervals = {metric: mean_interval(_column(samples, field)) for metric, field in means.items()}
    metrics = {metric: interval.mean for metric, interval in intervals.items()} | dict(others)
    folder = context.output_dir("report")
    lines = (json.dumps(sample, sort_keys=True) + "\n" for sample in samples)
    (folder / SAMPLES_FILE).write_text("".join(lines))
    report = ReportArtifact(
        metrics=metrics,
        intervals={metric: (interval.low, interval.high) for metric, interval in intervals.items()},
        samples_file=SAMPLES_FILE,
        num_samples=len(samples),
    )
    (folder / ARTIFACT_FILE).write_text(report.model_dump_json())
    context.beat(len(samples), len(samples), {next(iter(means)): metrics[next(iter(means))]})
    context.log_metrics(len(samples), {f"evaluation/{name}": value for name, value in metrics.items()})


def _column(samples: Sequence[Sample], field: str) -> list[float]:
    values = [sample[field] for sample in samples]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    assert len(numbers) == len(values), f"{field} is a number in every sample"
    return numbers
