"""Cron expressions of five fields: when a schedule fires."""

import re
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[A-Za-z]{3})(?:-([0-9]{1,2}|[A-Za-z]{3}))?)(?:/([0-9]{1,2}))?")


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def bounds(self) -> str:
        named = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{named}"


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


def check_cron(text: str) -> str:
    """The expression, if it is one that ever fires.

    Raises:
        ValueError: it is not; the message names the field.
    """
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError("expected five fields: minute, hour, day of the month, month, day of the week")
    _, _, days, months, weekdays = (_values(field, known) for field, known in zip(fields, _FIELDS, strict=True))
    longest = max(_LONGEST_MONTHS[month - 1] for month in months)
    # A day of the week beside it is another way for a day to count, so that the schedule fires all the same.
    if min(days) > longest and len(weekdays) == len(range(_FIELDS[4].low, _FIELDS[4].high + 1)):
        raise ValueError(f"never fires: no such month has a day {min(days)}")
    return text


def _values(text: str, field: _Field) -> set[int]:
    return {value for part in text.split(",") for value in _range(part, field)}


def _range(part: str, field: _Field) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(
            f"{field.name}: expected `*`, a number, a range such as 1-5 or steps such as */2, not `{part}`"
        )
    star, first, last, step = found.groups()
    low = field.low if star else _number(first, field)
    high = field.high if star or (step and not last) else _number(last or first, field)
    if low > high:
        raise ValueError(f"{field.name}: the range `{part}` ends before it starts")
    if step == "0" or step == "00" or (step and not star and not last):
        raise ValueError(f"{field.name}: steps are of a range, such as */2 or 1-9/2, not `{part}`")
    return range(low, high + 1, int(step or 1))


def _number(text: str, field: _Field) -> int:
    if text.upper() in field.names:
        return field.names.index(text.upper()) + (1 if field.low == 1 else 0)
    value = int(text) if text.isdigit() else -1
    if not field.low <= value <= field.high:
        raise ValueError(f"{field.name}: expected {field.bounds}, not `{text}`")
    return value
