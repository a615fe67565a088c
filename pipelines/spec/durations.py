"""Lengths of time as they are written in a pipeline: `90s`, `20m`, `12h`, `7d`, or a number of seconds."""

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_LONGEST = 366 * 86400.0


def parse_duration(value: object) -> float:
    """Seconds.

    Raises:
        ValueError: neither a number of seconds nor a number with a unit, or longer than a year.
    """
    seconds: float | None = None
    if isinstance(value, str) and (found := _FORM.fullmatch(value)):
        seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if seconds is None or not 0 <= seconds <= _LONGEST:
        raise ValueError("expected a duration such as 90s, 20m or 12h")
    return seconds


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "number", "minimum": 0}]}),
]
"""Seconds."""
