"""The action `select_best`: which of several candidates has the best value of a metric."""

import math
from collections.abc import Sequence

from pipelines.actions.reports import Report
from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.nodes import ActionNode, SelectBest
from stages.errors import UserError


def decide_select(node: ActionNode, reports: Sequence[Report]) -> int:
    """The index of the chosen candidate; of equal ones the first.

    Args:
        node: the action.
        reports: of its candidates, in their order.

    Raises:
        UserError: a report has no such metric, or no number there; it names the report.
    """
    assert isinstance(node.action, SelectBest)
    values = selected_values(node, reports)
    best = max(values) if node.action.mode == "max" else min(values)
    return values.index(best)


def selected_values(node: ActionNode, reports: Sequence[Report]) -> list[float]:
    """The value of the metric for each candidate.

    Raises:
        UserError: as `decide_select`.
    """
    assert isinstance(node.action, SelectBest)
    metric = node.action.metric
    values: list[float] = []
    for output, report in zip(node.inputs["reports"], reports, strict=True):
        value = report.metrics.get(metric)
        if value is None:
            hint = did_you_mean(metric, report.metrics) or f"; it has {', '.join(sorted(report.metrics))}"
            raise UserError(f"stages.{node.id}: {output.reference} has no metric `{metric}`{hint}")
        if math.isnan(value):
            raise UserError(f"stages.{node.id}: `{metric}` of {output.reference} is not a number")
        values.append(value)
    return values
