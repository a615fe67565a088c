"""Merges profiles and `--set` over a pipeline file; every value keeps the place that it came from."""

from pipelines.spec.diagnostics import KeyPath, Place, Problems, did_you_mean, dotted
from pipelines.spec.tree import Entry, Table, Tree, lookup
from pipelines.spec.yaml_text import read_yaml


def merge(base: Table, over: Table) -> Table:
    """The base with every key of the overlay replaced; mappings are merged key by key, lists are not."""
    entries = dict(base.entries)
    for key, entry in over.entries.items():
        below = entries.get(key)
        if below and isinstance(below.value, Table) and isinstance(entry.value, Table):
            entries[key] = Entry(below.key_place, merge(below.value, entry.value))
        else:
            entries[key] = entry
    return Table(entries, base.place)


def apply_profile(base: Table, profile: Table, problems: Problems) -> Table:
    """The file with a profile over it, and the profiles themselves left out."""
    return overlay(base.without("profiles"), profile, problems)


def overlay(base: Table, over: Table, problems: Problems) -> Table:
    """The base with another part of a pipeline over it, which names no stage by mistake."""
    _check_ids(base, over, "stages", problems)
    return merge(base, _with_declared_params(over))


def apply_overrides(base: Table, overrides: list[str], problems: Problems) -> Table:
    """The file with `--set` values over it; each is `a.b=VALUE`, its value read as YAML."""
    for override in overrides:
        flag = Place(f"--set {override}")
        over = _parse_override(base, override, flag, problems)
        if over is not None:
            base = merge(base, _with_declared_params(over))
    return base


def _parse_override(base: Table, override: str, flag: Place, problems: Problems) -> Table | None:
    name, equals, text = override.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        problems.add(flag, (), "expected PATH=VALUE, such as stages.sft.with.num_steps=20")
        return None
    value = read_yaml(text, lambda _line, _column: flag, problems) if text.strip() else None
    if value is None:
        if not text.strip():
            problems.add(flag, path, "a value is missing after `=`")
        return None
    problem = _unreachable(base, path)
    if problem:
        problems.add(flag, path, problem)
        return None
    for key in reversed(path):
        value = Table({key: Entry(flag, value)}, flag)
    assert isinstance(value, Table)
    return value


def _unreachable(base: Table, path: KeyPath) -> str | None:
    """Why an override cannot be applied: it goes through a value that has no keys, or to an unknown stage or param."""
    if path[0] == "profiles":
        return "a profile is chosen with --profile; set the value itself"
    for length in range(1, len(path)):
        found = lookup(base, path[:length])
        if found is not None and not isinstance(found, Table) and path[0] != "params":
            return f"`{dotted(path[:length])}` holds no keys"
    parent = lookup(base, path[:1])
    if path[0] in ("stages", "params") and len(path) > 1 and lookup(base, path[:2]) is None:
        known = parent.entries if isinstance(parent, Table) else ()
        what = "stage" if path[0] == "stages" else "parameter"
        return f"unknown {what} `{path[1]}`{did_you_mean(str(path[1]), known)}"
    return None


def _check_ids(base: Table, profile: Table, section: str, problems: Problems) -> None:
    """A stage that a profile adds has to say what it is; without that its id is taken for a slip."""
    known, added = base.get(section), profile.get(section)
    if not isinstance(known, Table) or not isinstance(added, Table):
        return
    for key, entry in added.entries.items():
        complete = isinstance(entry.value, Table) and {"uses", "gate", "action"} & set(entry.value.entries)
        if key not in known.entries and not complete:
            problems.add(entry.key_place, (section, key), f"unknown stage `{key}`{did_you_mean(key, known.entries)}")


def _with_declared_params(overlay: Table) -> Table:
    """`params: {seed: 7}` of an overlay stands for `params: {seed: {default: 7}}`."""
    params = overlay.get("params")
    if not isinstance(params, Table):
        return overlay
    declared = {key: Entry(entry.key_place, _declared(entry)) for key, entry in params.entries.items()}
    entry = Entry(overlay.entries["params"].key_place, Table(declared, params.place))
    return Table({**overlay.entries, "params": entry}, overlay.place)


def _declared(entry: Entry) -> Tree:
    if isinstance(entry.value, Table):
        return entry.value
    return Table({"default": Entry(entry.key_place, entry.value)}, entry.value.place)
