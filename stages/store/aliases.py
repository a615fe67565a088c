"""Names that people give to results: the only pointers of a store that move, by compare-and-swap alone."""

import re

from stages.contract import Strict
from stages.errors import TemperError, UserError
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import ALIASES_FOLDER, alias_path
from stages.store.records import decode, encode

ALIAS_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class AliasTarget(Strict):
    """An output of a committed stage."""

    stage: str
    """Kind of the stage."""
    key: str
    output: str
    manifest_generation: str
    """Of the manifest at the time when the alias was set."""


class AliasRecord(Strict):
    """What `aliases/{name}.json` says."""

    name: str
    checkpoint: AliasTarget
    report: AliasTarget | None = None
    """The evaluation that spoke for the checkpoint, which later gates compare with."""
    previous: str | None = None
    """Key of the checkpoint that the alias pointed to before."""
    set_by: str
    """The run, or the user."""
    set_at: str
    """UTC, ISO 8601."""


class AliasMovedError(TemperError):
    """An alias does not point to where its setter last saw it."""


def is_alias_name(text: str) -> bool:
    """Whether an alias may have this name."""
    return re.fullmatch(ALIAS_PATTERN, text) is not None


def check_alias_name(name: str) -> None:
    """Raises `UserError` for a name that no object can have."""
    if not is_alias_name(name):
        raise UserError(f"'{name}' names no alias: expected letters, digits, '_', '.' and '-', the first no sign")


def read_alias(store: ConditionalStore, name: str) -> tuple[AliasRecord, str] | None:
    """The record and its generation, or None if nobody set the alias.

    Raises:
        UserError: the name cannot be one.
    """
    check_alias_name(name)
    stored = store.get(alias_path(name))
    if stored is None:
        return None
    return decode(AliasRecord, stored.data, store.location(alias_path(name))), stored.generation


def set_alias(store: ConditionalStore, record: AliasRecord, expected: str | None) -> str:
    """Point an alias that still has the generation `expected` (None: that nobody set) elsewhere; returns the new one.

    Raises:
        AliasMovedError: somebody else set it since.
        UserError: the name cannot be one.
    """
    check_alias_name(record.name)
    path = alias_path(record.name)
    try:
        if expected is None:
            return store.create(path, encode(record))
        return store.swap(path, encode(record), expected)
    except PreconditionFailed as error:
        found = read_alias(store, record.name)
        if found is not None and found[0] == record:
            # Our write took effect, but its answer was lost.
            return found[1]
        raise AliasMovedError(_moved(record, found[0] if found else None)) from error


def _moved(wanted: AliasRecord, found: AliasRecord | None) -> str:
    now = f"points to {_describe(found)}, set by {found.set_by} at {found.set_at}" if found else "is gone"
    before = f"key {wanted.previous[:16]}" if wanted.previous else "nothing"
    return (
        f"alias {wanted.name} was not moved to {_describe(wanted)}: it {now}, and pointed to {before} "
        "when this was decided; look at both, then run again"
    )


def _describe(record: AliasRecord) -> str:
    target = record.checkpoint
    return f"{target.stage} {target.key[:16]}, output '{target.output}'"


def list_aliases(store: ConditionalStore) -> list[AliasRecord]:
    """All aliases by name."""
    names = (listed.path.removeprefix(f"{ALIASES_FOLDER}/") for listed in store.list(ALIASES_FOLDER))
    found = (read_alias(store, name.removesuffix(".json")) for name in sorted(names) if name.endswith(".json"))
    return [alias[0] for alias in found if alias is not None]
