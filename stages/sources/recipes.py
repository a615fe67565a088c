"""Recipes: a function in a Python file that makes rows, `path/recipe.py:create_dataset`, by the content of its file."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.remembered import file_sha256

FORM = re.compile(r"(?P<path>(?!.*://).+\.py):(?P<function>[A-Za-z_]\w*)", flags=re.ASCII)


class Recipe(NamedTuple):
    """A function and the file that it stands in."""

    path: Path
    function: str


def parse(uri: str) -> Recipe | None:
    """The recipe that a URI names, if it names one."""
    match = FORM.fullmatch(uri)
    return None if match is None else Recipe(Path(match["path"]), match["function"])


class Recipes:
    """Resolves recipes. What a recipe imports or reads is not looked at: its own file says of which version that is."""

    def check(self, uri: str) -> None:
        """Nothing: it is a recipe by its form."""

    def digest(self, uri: str) -> str:
        """Of the file's bytes and the function's name.

        Raises:
            UserError: there is no such file.
        """
        recipe = parse(uri)
        if recipe is None or not recipe.path.is_file():
            raise UserError(f"source {uri}: there is no such file; expected the path of a Python file and a function")
        identity = f"{file_sha256(recipe.path)}\0{recipe.function}"
        return f"sha256:{hashlib.sha256(identity.encode()).hexdigest()}"

    def open(self, source: SourceRef, cache: Path) -> Path:
        """The file, after its content was compared with the digest.

        Raises:
            UserError: the content is another one.
        """
        recipe = parse(source.uri)
        if recipe is None or self.digest(source.uri) != source.digest:
            raise UserError(f"source {source.uri}: the recipe changed after the plan was made; plan again")
        return recipe.path
