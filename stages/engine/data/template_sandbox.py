"""Where chat templates run: they change nothing, reach nothing, and are stopped when they take too much."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

MAX_CHARS = 2**24
"""The longest text that a template may write or build: more than any context holds."""

MAX_SECONDS = 20.0
"""For one conversation; published templates take milliseconds."""

STARTED = "started at"
"""Variable that holds `processor_seconds()` at the start; no name in a template has a space."""

_WIDE = re.compile(r"[0-9]{8}|%[-+ #0]*\*")
"""In a form for values: one is filled up to a width that is a danger, or to one that stands elsewhere."""
_FILLING = ("center", "format", "wordwrap")
"""Filters that fill a text up to any width; no published template known here has them."""


def processor_seconds() -> float:
    """Of this thread: a machine that is busy with others stops no template."""
    return time.thread_time()


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja whose loops, calls and operators are watched."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def watched_template(self, source: str) -> Template:
        """Compiles; raises Jinja's own errors. To be rendered with a variable `STARTED`."""
        self.filters["watched loop"] = _watched
        self.filters["bounded text"] = _bounded
        for name in _FILLING:
            self.filters.pop(name, None)
        self.globals.pop("lipsum", None)
        return self.from_string(_Watch().visit(self.parse(source)))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        if operator == "**" and not (isinstance(right, int | float) and abs(right) <= 64):
            raise SecurityError(f"the power {right!r} is too high")
        if operator == "%" and isinstance(left, str):
            _check_form(left)
        if operator == "*":
            _check_times(left, right)
            _check_times(right, left)
        return _bounded(super().call_binop(context, operator, left, right))

    def call(self, context: Context, called: Callable[..., object], *values: object, **named: object) -> object:
        _check_time(context)
        if isinstance(called, BuiltinMethodType) and isinstance(called.__self__, str):
            _check_widths(values)
        return _bounded(super().call(context, called, *values, **named))

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        safe = super().wrap_str_format(value)
        if safe is not None and isinstance(value, BuiltinMethodType):
            _check_form(str(value.__self__))
        return safe


class _Watch(NodeTransformer):
    """Puts a look at the clock into every loop, and one at the length behind every `~`."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 (as Jinja calls it)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "watched loop")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "bounded text")


def _filtered(value: nodes.Node, name: str) -> nodes.Filter:
    assert isinstance(value, nodes.Expr), "what a loop goes through"
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


@pass_context
def _watched(context: Context, items: Iterable[object]) -> Iterator[object]:
    for item in items:
        _check_time(context)
        yield item


def _bounded(value: object) -> object:
    if isinstance(value, str | list | tuple) and len(value) > MAX_CHARS:
        raise SecurityError(f"it builds a value of more than {MAX_CHARS} characters or items")
    return value


def _check_time(context: Context) -> None:
    if processor_seconds() - context.resolve(STARTED) > MAX_SECONDS:
        raise SecurityError(f"it runs for more than {MAX_SECONDS:g} seconds")


def _check_times(value: object, times: object) -> None:
    if isinstance(value, str | list | tuple) and isinstance(times, int) and len(value) * times > MAX_CHARS:
        raise SecurityError(f"it repeats a value {times} times")


def _check_widths(values: Iterable[object]) -> None:
    """Of a text's own methods, some of which fill it up, as `center`."""
    for value in values:
        if isinstance(value, int) and value > MAX_CHARS:
            raise SecurityError(f"the width {value} is too large")


def _check_form(form: str) -> None:
    if _WIDE.search(form):
        raise SecurityError("it fills a value up to a width of millions")
