"""Rows that a function of the user's own makes."""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType

from stages.engine.data.raw.json_lines import object_row
from stages.engine.data.raw.row import RawRow
from stages.errors import UserError


def rows_of_recipe(path: Path, function: str) -> Iterator[RawRow]:
    """What the function yields, each a mapping from columns to what JSON can hold; it takes no argument.

    Raises:
        UserError: the file cannot be run, has no such function, or the function fails; the message has the line.
    """
    place = f"{path}:{function}"
    with _told(place, path):
        made = _load(path, function)()
        if not isinstance(made, Iterable):
            raise UserError(f"{place}: expected it to yield rows or return a list, not {type(made).__name__}")
        for number, row in enumerate(made, start=1):
            yield object_row(dict(row) if isinstance(row, Mapping) else row, f"{place}: row {number}")


def _load(path: Path, function: str) -> Callable[[], object]:
    name = f"temper_recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends in .py"
    assert spec.loader is not None, "it is a file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    found = vars(module).get(function)
    if not callable(found):
        own = (value for value in vars(module).values() if isinstance(value, FunctionType) and value.__module__ == name)
        functions = [value.__name__ for value in own]
        raise UserError(f"{path} has no function '{function}'; it has {', '.join(functions) or 'none'}")
    return found


@contextmanager
def _told(place: str, path: Path) -> Generator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the user's own code may fail in any way
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f" in line {lines[-1]}" if lines else ""
        raise UserError(f"{place}: it fails{where}: {type(error).__name__}: {error}") from error
