"""Rewards by rule: 1.0 when a response is right, else 0.0."""

import re

from stages.errors import UserError

_NUMBER = re.compile(r"((?<![\w)\]])[-\u2212])?([0-9]+(?:\.[0-9]+)*)")
"""A number with its sign. A minus right after a letter, digit or closing bracket subtracts: `3-7` ends in 7."""


def last_integer(response: str, answer: str) -> float:
    """Whether the last integer in the response is the answer.

    `-7` and `= -7` are negative, `3-7` and `3 - 7` end in 7. A number with a point, `3.5`, is no integer and is passed
    over; a point that ends a sentence is none. Thousands separators are not understood: `1,234` ends in 234.

    Raises:
        UserError: the answer is not an integer.
    """
    wanted = _NUMBER.fullmatch(answer.strip())
    if wanted is None or "." in wanted[2]:
        raise UserError(f"the reward last_integer needs an integer as the answer, not {answer!r}")
    integers = [match for match in _NUMBER.finditer(response) if "." not in match[2]]
    return float(bool(integers) and _canonical(integers[-1]) == _canonical(wanted))


def exact(response: str, answer: str) -> float:
    """Whether the whole response is the answer, but for white space around it."""
    return float(response.strip() == answer.strip())


def _canonical(number: re.Match[str]) -> tuple[bool, str]:
    """Sign and digits: as text, since a response may have more digits than Python converts."""
    digits = number[2].lstrip("0")
    return bool(number[1] and digits), digits
