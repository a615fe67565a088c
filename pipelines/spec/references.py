"""References in a pipeline file: `${params.x}` and `${stages.id.outputs.name}`."""

import re
from dataclasses import dataclass

from pipelines.spec.diagnostics import did_you_mean


@dataclass(frozen=True)
class ParamReference:
    """`${params.name}`."""

    name: str


@dataclass(frozen=True)
class OutputReference:
    """`${stages.stage.outputs.output}`."""

    stage: str
    output: str

    def __str__(self) -> str:
        return f"stages.{self.stage}.outputs.{self.output}"


Reference = ParamReference | OutputReference

PARAM_PATTERN = r"\$\{params\.[A-Za-z][A-Za-z0-9_-]*\}"
"""A reference to a parameter; for editors."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


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


def parse_reference(inside: str) -> Reference:
    """The reference between `${` and `}`.

    Raises:
        ReferenceSyntaxError: it has neither of the two forms.
    """
    parts = inside.strip().split(".")
    well_named = all(_NAME.fullmatch(part) for part in parts)
    if well_named and parts[0] == "params" and len(parts) == 2:
        return ParamReference(parts[1])
    if well_named and parts[0] == "stages" and len(parts) == 4 and parts[2] == "outputs":
        return OutputReference(parts[1], parts[3])
    hint = did_you_mean(parts[0], ("params", "stages")) if parts[0] not in ("params", "stages") else ""
    if not hint and len(parts) == 4:
        hint = did_you_mean(parts[2], ("outputs",)) if parts[2] != "outputs" else ""
    expected = "expected `${params.NAME}` or `${stages.ID.outputs.NAME}`"
    raise ReferenceSyntaxError(f"bad reference `${{{inside}}}`: {expected}{hint}")
