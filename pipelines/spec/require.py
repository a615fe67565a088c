"""The parser of the conditions of `require` and `if`.

or_expression  := and_expression ("or" and_expression)*
and_expression := not_expression ("and" not_expression)*
not_expression := "not" not_expression | comparison
comparison     := operand (("<" | "<=" | ">" | ">=" | "==" | "!=") operand)?
operand        := NUMBER | STRING | "true" | "false" | METRIC | "${stages.ID.outputs.REPORT.METRIC}" | call
                  | "(" or_expression ")"
call           := ("delta" | "delta_low") "(" METRIC "," STRING ")"

A metric alone, and a call, are about the gate's own report, so that they stand in `require` only.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.expressions import (
    Combine,
    Compare,
    Comparison,
    Delta,
    DeltaName,
    Expression,
    Metric,
    Not,
    Number,
    ReportMetric,
    ReportReference,
    String,
    Truth,
    leaves,
)
from pipelines.spec.references import (
    AliasReference,
    MetricReference,
    OutputReference,
    ReferenceSyntaxError,
    parse_template,
)
from pipelines.spec.require_tokens import RequireSyntaxError, Token, tokenize

MAX_DEPTH = 50
"""Deepest nesting of parentheses and `not`."""

_COMPARISONS: dict[str, Comparison] = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "==", "!=": "!="}
_DELTAS: dict[str, DeltaName] = {"delta": "delta", "delta_low": "delta_low"}


def parse_requirement(text: str) -> Expression:
    """Parse a condition of a gate.

    Raises:
        RequireSyntaxError: it is not one, or compares what cannot be compared; with the column.
    """
    parser = _Parser(tokenize(text))
    expression = parser.or_expression()
    parser.expect("end")
    _want_condition(expression)
    return expression


def parse_condition(text: str) -> Expression:
    """Parse a condition of an `if`, which has no report of its own.

    Raises:
        RequireSyntaxError: as for a requirement, or it looks at a report of its own.
    """
    expression = parse_requirement(text)
    for leaf in leaves(expression):
        if isinstance(leaf, Metric):
            wanted = f"`${{stages.ID.outputs.report.{leaf.name}}}`"
            raise RequireSyntaxError(leaf.column, f"`{leaf.name}` of which report? Here a metric is {wanted}")
        if isinstance(leaf, Delta):
            raise RequireSyntaxError(leaf.column, f"`{leaf.function}` compares with a gate's own report: use a gate")
    return expression


_Kind = Literal["number", "text", "truth", "condition"]
_KIND_NAMES: Mapping[_Kind, str] = {
    "number": "a number",
    "text": "text",
    "truth": "true or false",
    "condition": "a condition",
}


def _kind(expression: Expression) -> _Kind:
    match expression:
        case Number() | Metric() | ReportMetric() | Delta():
            return "number"
        case String():
            return "text"
        case Truth():
            return "truth"
        case Compare() | Combine() | Not():
            return "condition"


def _want_condition(expression: Expression) -> None:
    if _kind(expression) not in ("condition", "truth"):
        raise RequireSyntaxError(expression.column, "expected a condition, such as `accuracy >= 0.5` here")


def _check_comparison(comparison: Compare) -> None:
    left, right = _kind(comparison.left), _kind(comparison.right)
    if left == "condition":
        raise RequireSyntaxError(comparison.left.column, "expected a value here, not a condition")
    if right != left:
        raise RequireSyntaxError(comparison.right.column, f"expected {_KIND_NAMES[left]} here")
    if left != "number" and comparison.operator not in ("==", "!="):
        message = f"`{comparison.operator}` compares numbers, not {_KIND_NAMES[left]}"
        raise RequireSyntaxError(comparison.column, message)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._position]

    def take(self) -> Token:
        token = self.next
        self._position += 1
        return token

    def expect(self, kind: str, text: str = "") -> Token:
        token = self.next
        if token.kind != kind or (text and token.text != text):
            wanted = f"`{text}`" if text else {"end": "the end", "name": "a metric", "string": "a quoted report"}[kind]
            raise RequireSyntaxError(token.column, f"expected {wanted}, not {token.shown}")
        return self.take()

    def or_expression(self) -> Expression:
        return self._chain("or", self.and_expression)

    def and_expression(self) -> Expression:
        return self._chain("and", self.not_expression)

    def _chain(self, word: Literal["and", "or"], part: Callable[[], Expression]) -> Expression:
        column = self.next.column
        parts = [part()]
        while self.next.kind == "name" and self.next.text == word:
            self.take()
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        for one in parts:
            _want_condition(one)
        return Combine(word, tuple(parts), column)

    def not_expression(self) -> Expression:
        if self.next.kind == "name" and self.next.text == "not":
            column = self._enter(self.take())
            part = self.not_expression()
            self._depth -= 1
            _want_condition(part)
            return Not(part, column)
        return self.comparison()

    def comparison(self) -> Expression:
        left = self.operand()
        operator = _COMPARISONS.get(self.next.text) if self.next.kind == "symbol" else None
        if operator is None:
            return left
        column = self.take().column
        right = self.operand()
        compared = Compare(operator, left, right, column)
        _check_comparison(compared)
        if self.next.kind == "symbol" and self.next.text in _COMPARISONS:
            raise RequireSyntaxError(self.next.column, "comparisons do not chain: join two with `and`")
        return compared

    def operand(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return Number(float(token.text), token.column)
        if token.kind == "string":
            return String(token.text, token.column)
        if token.kind == "reference":
            return _report_metric(token)
        if token.kind == "symbol" and token.text == "(":
            self._enter(token)
            inside = self.or_expression()
            self._depth -= 1
            self.expect("symbol", ")")
            return inside
        if token.kind == "name" and token.text in ("true", "false"):
            return Truth(token.text == "true", token.column)
        if token.kind == "name" and token.text not in ("and", "or", "not"):
            return self._call(token) if self.next.text == "(" else Metric(token.text, token.column)
        raise RequireSyntaxError(token.column, f"expected a value or a metric, not {token.shown}")

    def _enter(self, token: Token) -> int:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RequireSyntaxError(token.column, f"nested more than {MAX_DEPTH} deep")
        return token.column

    def _call(self, name: Token) -> Expression:
        function = _DELTAS.get(name.text)
        if function is None:
            hint = did_you_mean(name.text, _DELTAS)
            raise RequireSyntaxError(name.column, f"unknown function `{name.text}`{hint}")
        self.expect("symbol", "(")
        metric = self.expect("name").text
        self.expect("symbol", ",")
        report = _report(self.expect("string"))
        self.expect("symbol", ")")
        return Delta(function, metric, report, name.column)


def _report_metric(token: Token) -> ReportMetric:
    reference = _whole_reference(token)
    if isinstance(reference, MetricReference):
        return ReportMetric(reference.report, reference.metric, token.column)
    raise RequireSyntaxError(
        token.column, f"expected a metric of a report, `${{stages.ID.outputs.report.METRIC}}`, not {token.shown}"
    )


def _report(token: Token) -> ReportReference:
    reference = _whole_reference(token)
    if isinstance(reference, OutputReference | AliasReference):
        return reference
    raise RequireSyntaxError(
        token.column, f"expected '${{stages.ID.outputs.NAME}}' or '${{aliases.NAME}}', not {token.shown}"
    )


def _whole_reference(token: Token) -> object:
    try:
        pieces = parse_template(token.text)
    except ReferenceSyntaxError as error:
        raise RequireSyntaxError(token.column, str(error)) from None
    return pieces[0] if len(pieces) == 1 else None
