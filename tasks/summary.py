"""The end of a run on the terminal: what became of each stage, and the evaluations."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stages.statistics import Interval
from stages.store.runs import RunStage
from tasks.display import describe_numbers, describe_seconds
from tasks.report.content import Content
from tasks.report.evaluations import Difference, Evaluation

STYLES = {"done": "green", "resumed": "green", "passed": "green", "failed": "bold red", "stopped": "yellow"}


def print_summary(content: Content, console: Console) -> None:
    """Tables of stages and evaluations, the gates' requirements, and the verdict."""
    console.print()
    console.print(_stages(content.run.stages))
    if content.evaluations:
        console.print(_evaluations(content.evaluations))
    for stage in content.run.stages:
        for line in stage.lines:
            console.print(f"{stage.id}: {line}", markup=False, highlight=False, soft_wrap=True)
    style = {"succeeded": "bold green", "failed": "bold red"}.get(content.run.outcome, "bold yellow")
    message = f": {content.run.message}" if content.run.message else ""
    verdict = escape(f"{content.run.pipeline} {content.run.outcome}{message}")
    console.print(f"[{style}]{verdict}[/]", highlight=False, soft_wrap=True)


def _stages(stages: tuple[RunStage, ...]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("stage", "outcome", "steps", "time", ""):
        table.add_column(column, justify="right" if column in ("steps", "time") else "left")
    for stage in stages:
        style = STYLES.get(stage.outcome, "")
        outcome = f"[{style}]{stage.outcome}[/]" if style else stage.outcome
        detail = stage.message.splitlines()[0] if stage.message else describe_numbers(stage.numbers)
        table.add_row(escape(stage.id), outcome, _steps(stage), _time(stage), escape(detail))
    return table


def _steps(stage: RunStage) -> str:
    if stage.first_step is None or stage.last_step is None or stage.last_step <= stage.first_step:
        return ""
    return f"{stage.first_step}-{stage.last_step}"


def _time(stage: RunStage) -> str:
    return describe_seconds(stage.seconds) if stage.outcome in ("done", "resumed") else ""


def _evaluations(evaluations: tuple[Evaluation, ...]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("evaluation", "accuracy", "95% interval", "strict", "difference in points, 95% interval"):
        table.add_column(column, justify="right" if column in ("accuracy", "strict") else "left")
    for evaluation in evaluations:
        accuracy, strict = evaluation.accuracy, evaluation.report.metrics.get("strict_accuracy")
        table.add_row(
            escape(evaluation.stage),
            f"{100 * accuracy.mean:.1f}%" if accuracy else "",
            _range(accuracy) if accuracy else "",
            f"{100 * strict:.1f}%" if strict is not None else "",
            _differences(evaluation),
        )
    return table


def _range(interval: Interval) -> str:
    return f"{100 * interval.low:.1f}% to {100 * interval.high:.1f}%"


def _differences(evaluation: Evaluation) -> str:
    found = [difference for difference in (evaluation.from_first, evaluation.from_previous) if difference is not None]
    return "; ".join(_difference(difference) for difference in found)


def _difference(difference: Difference) -> str:
    interval = difference.interval
    numbers = f"{100 * interval.mean:+.1f} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
    return f"{numbers} from {escape(difference.other)}"
