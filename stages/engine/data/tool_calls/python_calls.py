"""Calls written as Python, read as a syntax tree of literals: nothing is ever run."""

import ast
import keyword
import re
from collections.abc import Iterator
from itertools import takewhile

from stages.engine.data.records import ToolCall
from stages.engine.data.tool_calls.json_value import write_json
from stages.engine.data.tool_calls.turn import Json, MalformedCallError, make_call
from stages.errors import UserError

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LINE_END = re.compile(r"\r\n|\r|\n")


def read_python_calls(source: str, offset: int) -> tuple[ToolCall, ...]:
    """Calls that stand one to a line, or in a list.

    Args:
        source: Python.
        offset: where it begins in the reply, for the position in errors.

    Raises:
        MalformedCallError: it is no Python, or more than calls with named arguments that are literals.
    """
    text = source.strip()
    reader = _Reader(text, offset + source.index(text))
    try:
        calls = tuple(reader.calls(ast.parse(text)))
    except SyntaxError as error:
        place = reader.place(error.lineno or 1, max((error.offset or 1) - 1, 0))
        raise MalformedCallError(f"no Python call: {error.msg}", place) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise MalformedCallError(f"no Python call: {type(error).__name__}", offset) from error
    if not calls:
        raise MalformedCallError("no call where one is announced", offset)
    return calls


def write_python_call(call: ToolCall) -> str:
    """A call on one line; from the first argument on whose name is no Python name, they go into `**{…}`.

    Raises:
        UserError: the tool's name is no Python name.
    """
    if not all(_is_name(part) for part in call.name.split(".")):
        raise UserError(
            f"a tool named {call.name!r} cannot be called in Python; choose a name of letters, digits and _"
        )
    named = [f"{name}={_write(value)}" for name, value in takewhile(_has_name, call.arguments.items())]
    rest = dict(list(call.arguments.items())[len(named) :])
    return f"{call.name}({', '.join([*named, f'**{_write(rest)}'] if rest else named)})"


def _has_name(argument: tuple[str, object]) -> bool:
    return _is_name(argument[0])


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and not keyword.iskeyword(name)


def _write(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{write_json(name)}: {_write(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_write, value)) + "]"
        case bool() | None:
            return repr(value)
        case _:
            return write_json(value)


class _Reader:
    """Calls in a syntax tree, with places in the reply for what is none."""

    def __init__(self, source: str, offset: int) -> None:
        """The source begins at `offset` of the reply."""
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(source)), len(source)]
        self._source = source
        self._offset = offset

    def calls(self, module: ast.Module) -> Iterator[ToolCall]:
        for statement in module.body:
            value = statement.value if isinstance(statement, ast.Expr) else statement
            yield from map(self._call, value.elts if isinstance(value, ast.List) else [value])

    def place(self, line: int, column: int) -> int:
        """Of a line, counted from 1, and a character in it."""
        return self._offset + min(self._starts[min(line, len(self._starts)) - 1] + column, len(self._source))

    def _call(self, node: ast.expr | ast.stmt) -> ToolCall:
        if not isinstance(node, ast.Call):
            raise self._refusal("something other than a call", node)
        if node.args:
            raise self._refusal("an argument without a name", node.args[0])
        arguments: dict[str, object] = {}
        for argument in node.keywords:
            value = self._value(argument.value)
            more = {argument.arg: value} if argument.arg is not None else value
            if not isinstance(more, dict) or arguments.keys() & more.keys():
                raise self._refusal("an argument without a name, or given twice", argument.value)
            arguments |= more
        return make_call(self._name(node.func), arguments, self._place_of(node))

    def _name(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=inner, attr=name):
                return f"{self._name(inner)}.{name}"
        raise self._refusal("the call has no name", node)

    def _value(self, node: ast.expr) -> Json:
        match node:
            case ast.Constant(value=str() | bool() | int() | float() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                names = [self._value(key) for key in keys if key is not None]
                texts = [name for name in names if isinstance(name, str)]
                if len(set(texts)) == len(values):
                    return dict(zip(texts, map(self._value, values), strict=True))
        raise self._refusal("a value that is no literal", node)

    def _refusal(self, reason: str, node: ast.expr | ast.stmt) -> MalformedCallError:
        return MalformedCallError(reason, self._place_of(node))

    def _place_of(self, node: ast.expr | ast.stmt) -> int:
        line = self._source[slice(*self._starts[node.lineno - 1 : node.lineno + 1])].encode()  # the tree counts bytes
        return self.place(node.lineno, len(line[: node.col_offset].decode(errors="ignore")))
