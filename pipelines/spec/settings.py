"""Reads the `with` of a stage into the settings of its kind."""

from pathlib import Path

from pipelines.spec.diagnostics import KeyPath, Place, Problems
from pipelines.spec.location import folder_of
from pipelines.spec.roles import source_values
from pipelines.spec.tree import Scalar, Table, Tree, locate, lookup, replace, to_json
from pipelines.spec.validation import validate
from stages.contract import StageConfigBase
from stages.errors import UserError
from stages.sources.resolve import absolute


def read_settings(
    config: type[StageConfigBase], stage: Table, path: KeyPath, place: Place, pipeline: Path, problems: Problems
) -> StageConfigBase | None:
    """The settings, with the paths of external inputs made absolute; none when problems were added."""
    entry = stage.entries.get("with")
    if entry is not None and not isinstance(entry.value, Table):
        return None
    tree = entry.value if entry and isinstance(entry.value, Table) else Table({}, place)
    place = entry.key_place if entry else place
    settings = validate(config, tree, (*path, "with"), problems, place)
    if settings is None:
        return None
    resolved: Tree = tree
    for setting, uri in source_values(settings):
        try:
            scalar = lookup(tree, setting)
            folder = folder_of(scalar.written if isinstance(scalar, Scalar) else None, pipeline)
            resolved = replace(resolved, setting, absolute(uri, folder))
        except UserError as error:
            problems.add(locate(tree, setting)[0], (*path, "with", *setting), str(error))
    return config.model_validate_json(to_json(resolved))
