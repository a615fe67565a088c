"""What the conditions of `require` and `if` are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pipelines.spec.references import AliasReference, OutputReference

Comparison = Literal["<", "<=", ">", ">=", "==", "!="]
DeltaName = Literal["delta", "delta_low"]
ReportReference = OutputReference | AliasReference


@dataclass(frozen=True)
class Number:
    """A literal number."""

    value: float
    column: int


@dataclass(frozen=True)
class String:
    """Literal text."""

    value: str
    column: int


@dataclass(frozen=True)
class Truth:
    """`true` or `false`."""

    value: bool
    column: int


@dataclass(frozen=True)
class Metric:
    """A number of the gate's own report."""

    name: str
    column: int


@dataclass(frozen=True)
class ReportMetric:
    """A number of the report that a stage made."""

    report: OutputReference
    name: str
    column: int


@dataclass(frozen=True)
class Delta:
    """`delta`: mean paired difference to another report; `delta_low`: lower end of its 95% interval."""

    function: DeltaName
    metric: str
    report: ReportReference
    column: int


@dataclass(frozen=True)
class Compare:
    """Two values of one kind compared: numbers; or texts or truths, for being equal only."""

    operator: Comparison
    left: "Expression"
    right: "Expression"
    column: int


@dataclass(frozen=True)
class Combine:
    """Conditions joined by `and` or `or`."""

    operator: Literal["and", "or"]
    parts: tuple["Expression", ...]
    column: int


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    part: "Expression"
    column: int


Expression = Number | String | Truth | Metric | ReportMetric | Delta | Compare | Combine | Not


def leaves(expression: Expression) -> Iterator[Number | String | Truth | Metric | ReportMetric | Delta]:
    """The values that a condition is made of, in the order of the text."""
    match expression:
        case Compare(left=left, right=right):
            yield from leaves(left)
            yield from leaves(right)
        case Combine(parts=parts):
            for part in parts:
                yield from leaves(part)
        case Not(part=part):
            yield from leaves(part)
        case _:
            yield expression


def reports(expression: Expression) -> Iterator[ReportReference]:
    """Every report that a condition names, in the order of the text."""
    for leaf in leaves(expression):
        if isinstance(leaf, Delta | ReportMetric):
            yield leaf.report


def with_reports(expression: Expression, names: Mapping[OutputReference, OutputReference]) -> Expression:
    """The condition with reports under other names; those that have none keep theirs."""
    match expression:
        case Compare(left=left, right=right):
            return replace(expression, left=with_reports(left, names), right=with_reports(right, names))
        case Combine(parts=parts):
            return replace(expression, parts=tuple(with_reports(part, names) for part in parts))
        case Not(part=part):
            return replace(expression, part=with_reports(part, names))
        case ReportMetric(report=report):
            return replace(expression, report=names.get(report, report))
        case Delta(report=OutputReference() as report):
            return replace(expression, report=names.get(report, report))
        case _:
            return expression
