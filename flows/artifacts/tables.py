"""The plan, the stages and the evaluations of a run as tables."""

from collections.abc import Mapping, Sequence

from flows.artifacts.markdown import table
from pipelines.spec.planned import Plan
from stages.statistics import Interval
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.runs import RunRecord, RunStage
from tasks.display import describe_numbers, describe_seconds
from tasks.links import address
from tasks.report.evaluations import Difference, Evaluation

COMMITTED = ("reused", "done", "resumed")
SHORT_KEY = 16


def plan_table(plan: Plan) -> str:
    """What was planned, as markdown."""
    rows = [
        (planned.node.id, planned.decision, (planned.key or "")[:SHORT_KEY], planned.reason)
        for planned in plan.nodes.values()
    ]
    return table(("node", "decision", "key", "why"), rows)


def stage_rows(store: ConditionalStore, record: RunRecord) -> list[Mapping[str, str]]:
    """What became of every node so far; committed ones link to their manifest."""
    return [_stage_row(store, stage) for stage in record.stages]


def _stage_row(store: ConditionalStore, stage: RunStage) -> Mapping[str, str]:
    is_committed = stage.outcome in COMMITTED and stage.key is not None
    link = f"[manifest]({address(store, manifest_path(stage))})" if is_committed else ""
    steps = "" if stage.first_step is None or stage.last_step is None else f"{stage.first_step}-{stage.last_step}"
    return {
        "node": stage.id,
        "state": stage.outcome,
        "key": (stage.key or "")[:SHORT_KEY],
        "steps": steps,
        "time": describe_seconds(stage.seconds) if stage.seconds else "",
        "detail": _detail(stage),
        "result": link,
    }


def manifest_path(stage: RunStage) -> str:
    """Where a committed stage's manifest is in the store."""
    assert stage.key is not None
    return StagePaths(stage.kind, stage.key).manifest


def _detail(stage: RunStage) -> str:
    if stage.message:
        return stage.message.splitlines()[0]
    return "; ".join(stage.lines) or describe_numbers(stage.numbers)


def evaluation_table(evaluations: Sequence[Evaluation]) -> str:
    """The evaluations side by side, as markdown."""
    header = ("evaluation", "model", "accuracy", "95% interval", "strict", "difference in points, 95% interval")
    return table(header, [_evaluation_row(evaluation) for evaluation in evaluations])


def _evaluation_row(evaluation: Evaluation) -> tuple[str, ...]:
    accuracy, strict = evaluation.accuracy, evaluation.report.metrics.get("strict_accuracy")
    differences = [found for found in (evaluation.from_first, evaluation.from_previous) if found is not None]
    return (
        evaluation.stage,
        evaluation.model,
        f"{100 * accuracy.mean:.1f}%" if accuracy else "",
        _range(accuracy) if accuracy else "",
        f"{100 * strict:.1f}%" if strict is not None else "",
        "; ".join(_difference(difference) for difference in differences),
    )


def _range(interval: Interval) -> str:
    return f"{100 * interval.low:.1f}% to {100 * interval.high:.1f}%"


def _difference(difference: Difference) -> str:
    interval = difference.interval
    numbers = f"{100 * interval.mean:+.1f} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"
    return f"{numbers} from {difference.other}"
