"""Works values into the stages of a file: fan-out, references, defaults."""

from pipelines.spec.diagnostics import Place, Problems
from pipelines.spec.expand import Instance, expand
from pipelines.spec.graph import Draft
from pipelines.spec.interpolate import interpolate
from pipelines.spec.overlay import merge
from pipelines.spec.params import Params
from pipelines.spec.scope import Scope
from pipelines.spec.secret_places import refuse_secrets
from pipelines.spec.stage_sections import DefaultsSection
from pipelines.spec.tree import Entry, Table, Tree
from pipelines.spec.validation import validate

_FAN_OUT = ("matrix", "for_each")
"""What fans a stage out; for gates and actions these are keys like any other that they do not have."""


def make_drafts(tree: Table, params: Params, problems: Problems) -> tuple[dict[str, tuple[Instance, ...]], list[Draft]]:
    """Every name's instances, and a draft for each of them.

    Args:
        tree: the file, its defaults without references.
        params: what references to parameters stand for.
        problems: gets what is wrong; what concerns one instance goes to its draft.
    """
    defaults = tree.get("defaults")
    if isinstance(defaults, Table):
        validate(DefaultsSection, defaults, ("defaults",), problems, tree.entries["defaults"].key_place)
    stages: dict[str, Entry] = {}
    tables: dict[str, Table] = {}
    found = tree.get("stages")
    for name, entry in found.entries.items() if isinstance(found, Table) else ():
        if not isinstance(entry.value, Table):
            problems.add(entry.key_place, ("stages", name), "expected a mapping of keys to values")
            continue
        stages[name], tables[name] = entry, _with_fan_out(name, entry.value, params, problems)
    faulty = {name: () for name in (found.entries if isinstance(found, Table) else ()) if name not in tables}
    fanned = {name: table if "uses" in table.entries else table.without(*_FAN_OUT) for name, table in tables.items()}
    instances = {**expand(fanned, problems), **faulty}
    drafts = [
        _draft(instance, stages[name].key_place, tables[name], defaults, params, problems)
        for name in stages
        for instance in instances[name]
    ]
    return instances, drafts


def _with_fan_out(name: str, table: Table, params: Params, problems: Problems) -> Table:
    """The table with values in place of references in what fans the stage out."""
    entries: dict[str, Entry] = {}
    for key, entry in table.entries.items():
        if key in _FAN_OUT:
            path, place = ("stages", name, key), entry.key_place
            entries[key] = Entry(place, interpolate(entry.value, path, place, Scope(params), problems))
            refuse_secrets(entries[key].value, path, problems, place)
    return Table({**table.entries, **entries}, table.place)


def _draft(
    instance: Instance, place: Place, table: Table, defaults: Tree | None, params: Params, problems: Problems
) -> Draft:
    own_problems = Problems(problems)
    path = ("stages", instance.group)
    rest = table.without(*_FAN_OUT) if "uses" in table.entries else table
    own = interpolate(rest, path, place, Scope(params, instance), own_problems)
    assert isinstance(own, Table)
    refuse_secrets(own, path, own_problems)
    is_stage = not {"gate", "action"} & set(own.entries)
    under = Table(defaults.entries if isinstance(defaults, Table) and is_stage else {}, own.place)
    return Draft(instance, place, own, merge(under, own), own_problems)
