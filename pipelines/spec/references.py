"""References in a pipeline file, such as `${params.x}` and `${stages.id.outputs.name}`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pipelines.spec.diagnostics import did_you_mean


@dataclass(frozen=True)
class ParamReference:
    """`${params.name}`."""

    name: str

    def __str__(self) -> str:
        return f"params.{self.name}"


@dataclass(frozen=True)
class OutputReference:
    """`${stages.stage.outputs.output}`; `dpo[beta=0.1]` is one instance of a fanned-out stage, `dpo[*]` all of them."""

    stage: str
    output: str

    def __str__(self) -> str:
        return f"stages.{self.stage}.outputs.{self.output}"


@dataclass(frozen=True)
class MetricReference:
    """`${stages.stage.outputs.report.metric}`."""

    report: OutputReference
    metric: str

    def __str__(self) -> str:
        return f"{self.report}.{self.metric}"


@dataclass(frozen=True)
class MatrixReference:
    """`${matrix.axis}`: the value of the instance's own cell."""

    axis: str

    def __str__(self) -> str:
        return f"matrix.{self.axis}"


@dataclass(frozen=True)
class EachReference:
    """`${each.outputs.output}`, of the instance that this one goes with, or a metric of that report."""

    output: str
    metric: str | None = None

    def __str__(self) -> str:
        return f"each.outputs.{self.output}{f'.{self.metric}' if self.metric else ''}"

    def of(self, stage: str) -> OutputReference | MetricReference:
        """The reference to the output of that instance."""
        output = OutputReference(stage, self.output)
        return output if self.metric is None else MetricReference(output, self.metric)


@dataclass(frozen=True)
class EachMatrixReference:
    """`${each.matrix.axis}`: the value of the cell of the instance that this one goes with."""

    axis: str

    def __str__(self) -> str:
        return f"each.matrix.{self.axis}"


@dataclass(frozen=True)
class AliasReference:
    """`${aliases.name}`: what an alias of the store points to."""

    name: str

    def __str__(self) -> str:
        return f"aliases.{self.name}"


@dataclass(frozen=True)
class EnvReference:
    """`${env.NAME}`: a variable of the environment of whoever reads the file."""

    name: str

    def __str__(self) -> str:
        return f"env.{self.name}"


@dataclass(frozen=True)
class RunReference:
    """`${run.id}` and `${run.date}`, the day in UTC on which it was made."""

    name: Literal["id", "date"]

    def __str__(self) -> str:
        return f"run.{self.name}"


Reference = (
    ParamReference
    | OutputReference
    | MetricReference
    | MatrixReference
    | EachReference
    | EachMatrixReference
    | AliasReference
    | EnvReference
    | RunReference
)

VALUE_PATTERN = r"\$\{(params|matrix|each\.matrix|env)\.[A-Za-z][A-Za-z0-9_-]*\}"
"""A reference that may stand for a setting; for editors."""

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_STAGE = rf"{_NAME}(?:\[[^\[\]]*\])?"


class ReferenceSyntaxError(ValueError):
    """Text that starts a reference and is none; the message says what was expected."""


def parse_template(text: str) -> tuple[str | Reference, ...]:
    """Split text into literal pieces and references; `$${` is a literal `${`.

    Raises:
        ReferenceSyntaxError: a reference is not closed or has another form.
    """
    pieces: list[str | Reference] = []
    literal = ""
    position = 0
    while position < len(text):
        if text.startswith("$${", position):
            literal += "${"
            position += 3
        elif text.startswith("${", position):
            end = text.find("}", position)
            if end < 0:
                raise ReferenceSyntaxError(f"the reference `{text[position:]}` is not closed with `}}`")
            if literal:
                pieces.append(literal)
            pieces.append(parse_reference(text[position + 2 : end]))
            literal = ""
            position = end + 1
        else:
            literal += text[position]
            position += 1
    if literal:
        pieces.append(literal)
    return tuple(pieces)


def escaped(literal: str) -> str:
    """Text that `parse_template` reads as this literal."""
    return literal.replace("${", "$${")


def parse_reference(inside: str) -> Reference:
    """The reference between `${` and `}`.

    Raises:
        ReferenceSyntaxError: it has none of the forms.
    """
    text = inside.strip()
    for pattern, make in _FORMS:
        found = re.fullmatch(pattern, text)
        if found:
            return make(*found.groups())
    raise ReferenceSyntaxError(f"bad reference `${{{inside}}}`: {_expected(text)}")


def _output(stage: str, output: str, metric: str | None) -> OutputReference | MetricReference:
    reference = OutputReference(stage, output)
    return reference if metric is None else MetricReference(reference, metric)


def _run(name: str) -> RunReference:
    return RunReference("id" if name == "id" else "date")


_METRIC = r"(?:\.([A-Za-z_][A-Za-z0-9_]*))?"
_FORMS: tuple[tuple[str, Callable[..., Reference]], ...] = (
    (rf"params\.({_NAME})", ParamReference),
    (rf"stages\.({_STAGE})\.outputs\.({_NAME}){_METRIC}", _output),
    (rf"matrix\.({_NAME})", MatrixReference),
    (rf"each\.outputs\.({_NAME}){_METRIC}", EachReference),
    (rf"each\.matrix\.({_NAME})", EachMatrixReference),
    (r"aliases\.([A-Za-z0-9][A-Za-z0-9_.-]*)", AliasReference),
    (r"env\.([A-Za-z_][A-Za-z0-9_]*)", EnvReference),
    (r"run\.(id|date)", _run),
)
_SHOWN: Mapping[str, str] = {
    "params": "`${params.NAME}`",
    "stages": "`${stages.ID.outputs.NAME}`",
    "matrix": "`${matrix.NAME}`",
    "each": "`${each.outputs.NAME}` or `${each.matrix.NAME}`",
    "aliases": "`${aliases.NAME}`",
    "env": "`${env.NAME}`",
    "run": "`${run.id}` or `${run.date}`",
}


def _expected(text: str) -> str:
    parts = text.split(".")
    if parts[0] not in _SHOWN:
        *roots, last = (f"`{root}`" for root in _SHOWN)
        return _form_meant(parts[0]) or f"it starts with {', '.join(roots)} or {last}"
    middle = {"stages": 2, "each": 1}.get(parts[0])
    words = {"stages": ("outputs",), "each": ("outputs", "matrix")}.get(parts[0], ())
    wrong = parts[middle] if middle is not None and middle < len(parts) and parts[middle] not in words else None
    return f"expected {_SHOWN[parts[0]]}{did_you_mean(wrong, words) if wrong else ''}"


def _form_meant(word: str) -> str:
    """The form that was probably meant, by its first word."""
    hint = did_you_mean(word, _SHOWN)
    return f"expected {next(_SHOWN[root] for root in _SHOWN if f'`{root}`' in hint)}{hint}" if hint else ""
