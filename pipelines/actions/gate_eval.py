"""Decides a `gate: eval` from loaded reports."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipelines.actions.reports import Report
from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.expressions import (
    Combine,
    Compare,
    Comparison,
    Delta,
    Expression,
    Metric,
    Not,
    Number,
    ReportMetric,
    ReportReference,
    String,
    Truth,
)
from pipelines.spec.nodes import Condition, GateNode
from pipelines.spec.references import OutputReference
from stages.errors import UserError
from stages.statistics import Interval, paired_difference

_COMPARE: Mapping[Comparison, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class RequirementOutcome:
    """Whether a requirement holds, and the numbers that it was decided on."""

    text: str
    passed: bool
    numbers: tuple[str, ...]

    def __str__(self) -> str:
        numbers = f" ({', '.join(self.numbers)})" if self.numbers else ""
        return f"{'passed' if self.passed else 'failed'}: {self.text}{numbers}"


@dataclass(frozen=True)
class GateOutcome:
    """A gate passes when all its requirements do."""

    requirements: tuple[RequirementOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether the pipeline goes on."""
        return all(requirement.passed for requirement in self.requirements)

    @property
    def lines(self) -> tuple[str, ...]:
        """One line for each requirement."""
        return tuple(str(requirement) for requirement in self.requirements)


def evaluate_gate(gate: GateNode, reports: Mapping[ReportReference, Report]) -> GateOutcome:
    """Decide a gate.

    Args:
        gate: what is required.
        reports: every report of `gate.reports`.

    Raises:
        UserError: a report has no such metric, or two reports are not about the same samples.
    """
    own = reports[gate.inputs["report"].reference]
    return GateOutcome(tuple(_decide(gate, requirement, own, reports) for requirement in gate.require))


def evaluate_condition(condition: Condition, reports: Mapping[ReportReference, Report]) -> RequirementOutcome:
    """Decide an `if`.

    Args:
        condition: what has to hold.
        reports: every report of `condition.reports`.

    Raises:
        UserError: a report has no such metric.
    """
    decision = _Decision(Report({}, {}), reports)
    try:
        passed = decision.condition(condition.expression)
    except UserError as error:
        raise UserError(f"if `{condition.text}`: {error}") from error
    return RequirementOutcome(condition.text, passed, tuple(dict.fromkeys(decision.numbers)))


def _decide(
    gate: GateNode, requirement: Condition, own: Report, reports: Mapping[ReportReference, Report]
) -> RequirementOutcome:
    decision = _Decision(own, reports)
    try:
        passed = decision.condition(requirement.expression)
    except UserError as error:
        raise UserError(f"stages.{gate.id}.require: `{requirement.text}`: {error}") from error
    return RequirementOutcome(requirement.text, passed, tuple(dict.fromkeys(decision.numbers)))


class _Decision:
    """Evaluates one requirement, and notes the numbers on the way; every part is evaluated, so that all are noted."""

    def __init__(self, own: Report, reports: Mapping[ReportReference, Report]) -> None:
        self._own = own
        self._reports = reports
        self.numbers: list[str] = []

    def condition(self, expression: Expression) -> bool:
        match expression:
            case Truth(value=value):
                return value
            case Not(part=part):
                return not self.condition(part)
            case Combine(operator=word, parts=parts):
                values = [self.condition(part) for part in parts]
                return all(values) if word == "and" else any(values)
            case Compare(operator=comparison, left=left, right=right):
                return self._compare(comparison, left, right)
            case Number() | String() | Metric() | ReportMetric() | Delta():
                raise AssertionError("the parser lets no value stand for a condition")

    def _compare(self, comparison: Comparison, left: Expression, right: Expression) -> bool:
        match left, right:
            case (String(value=one), String(value=other)) | (Truth(value=one), Truth(value=other)):
                return (one == other) == (comparison == "==")
            case _:
                return _COMPARE[comparison](self.number(left), self.number(right))

    def number(self, expression: Expression) -> float:
        match expression:
            case Number(value=value):
                return value
            case Metric(name=name):
                value = _metric(self._own, name)
                self.numbers.append(f"{name} = {value:.4g}")
                return value
            case ReportMetric(report=report, name=name):
                value = _metric(self._reports[report], name)
                self.numbers.append(f"{name} of {report.stage} = {value:.4g}")
                return value
            case Delta():
                return self._delta(expression)
            case String() | Truth() | Compare() | Combine() | Not():
                raise AssertionError("the parser compares numbers with numbers only")

    def _delta(self, delta: Delta) -> float:
        interval = metric_difference(self._own, self._reports[delta.report], delta.metric)
        self.numbers.append(
            f"{delta.metric} differs from {_name(delta.report)} by {interval.mean:+.4f}, "
            f"95% interval {interval.low:+.4f} to {interval.high:+.4f}"
        )
        return interval.mean if delta.function == "delta" else interval.low


def _metric(report: Report, name: str) -> float:
    if name not in report.metrics:
        hint = did_you_mean(name, report.metrics) or f"; it has {', '.join(sorted(report.metrics))}"
        raise UserError(f"the report has no metric `{name}`{hint}")
    return report.metrics[name]


def _name(report: ReportReference) -> str:
    return report.stage if isinstance(report, OutputReference) else report.name


def metric_difference(report: Report, other: Report, metric: str) -> Interval:
    """The mean of a metric in one report minus that in another, paired by sample.

    Raises:
        UserError: a report has no samples of the metric, or the two are not about the same samples.
    """
    columns = [side.column(metric) for side in (report, other)]
    if not all(columns):
        raise UserError(f"a difference needs a number `{metric}` for each sample, which a report does not have")
    return paired_difference(*columns)
