"""The rows of a source, wherever they come from."""

from collections.abc import Iterator

from stages.contract import StageContext
from stages.engine.data.formats.fields import Columns
from stages.engine.data.raw.file import read_file
from stages.engine.data.raw.folder import find_files
from stages.engine.data.raw.recipe import rows_of_recipe
from stages.engine.data.raw.row import RawRow
from stages.engine.data.sources import distinct_problems
from stages.errors import UserError
from stages.prepare.config import DataSource
from stages.sources.reasoning_gym import SCHEME, open_task
from stages.sources.recipes import parse


def is_endless(entry: DataSource) -> bool:
    """Whether rows are drawn as many as are asked for."""
    return entry.source.startswith(SCHEME)


def read_rows(context: StageContext, entry: DataSource, seed: int) -> Iterator[RawRow]:
    """The rows as they stand there.

    Raises:
        UserError: there are none, or they cannot be read.
        StorageError: a file cannot be read.
    """
    source = context.source(entry.source)
    if is_endless(entry):
        _refuse_split(entry)
        problems = enumerate(distinct_problems(open_task(source), seed), start=1)
        return (
            RawRow(f"{source.uri}: problem {number}", {"question": one.question, "answer": one.answer})
            for number, one in problems
        )
    path = context.source_path(source)
    recipe = parse(source.uri)
    if recipe is not None:
        _refuse_split(entry)
        return rows_of_recipe(path, recipe.function)
    names = Columns(entry.columns).all
    return (row for file in find_files(path, entry.split) for row in read_file(file, names))


def _refuse_split(entry: DataSource) -> None:
    if entry.split is not None:
        raise UserError(f"{entry.source} is not published in splits, so that there is no '{entry.split}'")
