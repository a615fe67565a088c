"""A JSON value somewhere in a text, read strictly."""

import json
import re

from stages.engine.data.tool_calls.turn import Json, MalformedCallError

_SPACE = re.compile(r"\s*")


def skip_space(text: str, position: int) -> int:
    """Where the text goes on after white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def read_json(text: str, position: int) -> tuple[Json, int]:
    """The value that begins at a position, after white space, and where it ends.

    Raises:
        MalformedCallError: there is none, it is cut off, or it is none that can be kept: NaN, infinity, a field given
            twice, a nesting or a number beyond bounds.
    """
    start = skip_space(text, position)

    def unique(pairs: list[tuple[str, object]]) -> Json:
        value = dict(pairs)
        if len(value) < len(pairs):
            raise MalformedCallError("a field is given twice", start)
        return value

    def refuse(constant: str) -> Json:
        raise MalformedCallError(f"{constant} is no JSON", start)

    decoder = json.JSONDecoder(object_pairs_hook=unique, parse_constant=refuse)
    try:
        return decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        cut = "the JSON is cut off" if not text[error.pos :].strip() else "bad JSON"
        raise MalformedCallError(f"{cut}: {error.msg}", error.pos) from error
    except (RecursionError, ValueError) as error:
        raise MalformedCallError(f"bad JSON: {error}", start) from error


def write_json(value: object) -> str:
    """JSON as models were trained on it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
