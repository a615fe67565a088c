"""The expressions of a gate's `require`: what they are made of, and their parser.

or_expression  := and_expression ("or" and_expression)*
and_expression := not_expression ("and" not_expression)*
not_expression := "not" not_expression | comparison
comparison     := operand (("<" | "<=" | ">" | ">=" | "==" | "!=") operand)?
operand        := NUMBER | "true" | "false" | METRIC | call | "(" or_expression ")"
call           := ("delta" | "delta_low") "(" METRIC "," STRING ")"
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.references import OutputReference, ReferenceSyntaxError, parse_template
from pipelines.spec.require_tokens import RequireSyntaxError, Token, tokenize

Comparison = Literal["<", "<=", ">", ">=", "==", "!="]
DeltaName = Literal["delta", "delta_low"]

MAX_DEPTH = 50
"""Deepest nesting of parentheses and `not`."""


@dataclass(frozen=True)
class Number:
    """A literal number."""

    value: float
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
class Delta:
    """`delta`: mean paired difference to another report; `delta_low`: lower end of its 95% interval."""

    function: DeltaName
    metric: str
    report: OutputReference
    column: int


@dataclass(frozen=True)
class Compare:
    """Two numbers compared."""

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


Expression = Number | Truth | Metric | Delta | Compare | Combine | Not

_COMPARISONS: dict[str, Comparison] = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "==", "!=": "!="}
_DELTAS: dict[str, DeltaName] = {"delta": "delta", "delta_low": "delta_low"}


def parse_requirement(text: str) -> Expression:
    """Parse a condition.

    Raises:
        RequireSyntaxError: it is not one, or compares what is no number, or is no condition; with the column.
    """
    parser = _Parser(tokenize(text))
    expression = parser.or_expression()
    parser.expect("end")
    _want(expression, condition=True)
    return expression


def deltas(expression: Expression) -> Iterator[Delta]:
    """Every comparison with another report, in the order of the text."""
    match expression:
        case Delta():
            yield expression
        case Compare(left=left, right=right):
            yield from deltas(left)
            yield from deltas(right)
        case Combine(parts=parts):
            for part in parts:
                yield from deltas(part)
        case Not(part=part):
            yield from deltas(part)
        case Number() | Truth() | Metric():
            return


def _want(expression: Expression, condition: bool) -> None:
    is_condition = isinstance(expression, Truth | Compare | Combine | Not)
    if is_condition != condition:
        wanted = "a condition, such as `accuracy >= 0.5`" if condition else "a number"
        raise RequireSyntaxError(expression.column, f"expected {wanted} here")


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
            _want(one, condition=True)
        return Combine(word, tuple(parts), column)

    def not_expression(self) -> Expression:
        if self.next.kind == "name" and self.next.text == "not":
            column = self._enter(self.take())
            part = self.not_expression()
            self._depth -= 1
            _want(part, condition=True)
            return Not(part, column)
        return self.comparison()

    def comparison(self) -> Expression:
        left = self.operand()
        operator = _COMPARISONS.get(self.next.text) if self.next.kind == "symbol" else None
        if operator is None:
            return left
        column = self.take().column
        right = self.operand()
        _want(left, condition=False)
        _want(right, condition=False)
        if self.next.kind == "symbol" and self.next.text in _COMPARISONS:
            raise RequireSyntaxError(self.next.column, "comparisons do not chain: join two with `and`")
        return Compare(operator, left, right, column)

    def operand(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return Number(float(token.text), token.column)
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
        raise RequireSyntaxError(token.column, f"expected a number or a metric, not {token.shown}")

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


def _report(token: Token) -> OutputReference:
    try:
        pieces = parse_template(token.text)
    except ReferenceSyntaxError as error:
        raise RequireSyntaxError(token.column, str(error)) from None
    if len(pieces) == 1 and isinstance(pieces[0], OutputReference):
        return pieces[0]
    raise RequireSyntaxError(token.column, f"expected '${{stages.ID.outputs.NAME}}', not {token.shown}")
