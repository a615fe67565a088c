"""Plain scalars by the core schema of YAML 1.2: `1e-5` is a number, `no` and `12:30:00` are text, `010` is ten."""

import re

from pipelines.spec.tree import ScalarValue

_NULLS = ("", "~", "null", "Null", "NULL")
_TRUES = ("true", "True", "TRUE")
_FALSES = ("false", "False", "FALSE")
# A number of more digits is read as a float, and a far too long one as infinity, which every setting refuses.
_DECIMAL = re.compile(r"[-+]?[0-9]{1,200}")
_OCTAL = re.compile(r"0o[0-7]{1,200}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,200}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NANS = (".nan", ".NaN", ".NAN")


def plain_scalar(text: str) -> ScalarValue:
    """The value that unquoted text stands for."""
    if text in _NULLS:
        return None
    if text in _TRUES:
        return True
    if text in _FALSES:
        return False
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, 0)
    if _HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITY.fullmatch(text):
        return float(text.replace(".", ""))
    return float("nan") if text in _NANS else None
