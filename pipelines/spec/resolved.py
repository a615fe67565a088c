"""A pipeline with everything worked in but its fan-out: one tree whose leaves know where they were written."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, JsonValue, TypeAdapter

from pipelines.spec.diagnostics import KeyPath, Place, Problems
from pipelines.spec.drafts import make_drafts
from pipelines.spec.gate_sections import ACTIONS, GATES
from pipelines.spec.graph import Draft
from pipelines.spec.head import absolute_tracker_folders
from pipelines.spec.interpolate import interpolate, interpolate_sections
from pipelines.spec.load import Loaded
from pipelines.spec.location import folder_of
from pipelines.spec.nodes import ExternalSource, Pipeline, StageNode
from pipelines.spec.overlay import merge
from pipelines.spec.params import Params, read_params
from pipelines.spec.roles import source_values
from pipelines.spec.scope import Scope
from pipelines.spec.stage_sections import StageSection
from pipelines.spec.tree import Entry, Scalar, Table, Tree, from_plain, lookup, replace, to_json
from stages.sources.resolve import absolute

DEFAULT = Place("default")
"""Where a value was written that no file has."""

_HEAD = ("version", "name", "description", "store", "notify", "trackers", "schedule")
_RESOLVED_BEFORE = ("profile", "params")
"""Parts of a schedule that have no meaning any more."""
_JSON = TypeAdapter(dict[str, JsonValue])


def resolved(loaded: Loaded) -> Table:
    """The pipeline as a file of its own: the same stages with the same keys, wherever that file stands.

    A fanned-out stage stays one, with references to its cell.
    """
    problems = Problems()
    params = read_params(loaded.tree, problems)
    tree = interpolate_sections(loaded.tree, (*_HEAD, "defaults"), Scope(params, keep_cells=True), problems)
    tree = absolute_tracker_folders(tree, loaded.pipeline.path)
    instances, drafts = make_drafts(tree, params, problems)
    groups: dict[str, list[Draft]] = {group: [] for group in instances}
    for draft in drafts:
        groups[draft.instance.group].append(draft)
    stages = loaded.tree.get("stages")
    assert isinstance(stages, Table), "the pipeline is valid"
    nodes = {
        group: Entry(
            stages.entries[group].key_place, _node(stages.entries[group], members, tree, params, loaded.pipeline)
        )
        for group, members in groups.items()
    }
    head = _head(tree, loaded.pipeline)
    return Table({**head, "stages": Entry(stages.place, Table(nodes, stages.place))}, tree.place)


def _head(tree: Table, pipeline: Pipeline) -> Mapping[str, Entry]:
    store, schedule = tree.entries.get("store"), tree.get("schedule")
    place = store.value.written if store and isinstance(store.value, Scalar) else DEFAULT
    entries = {key: tree.entries[key] for key in _HEAD if key in tree.entries}
    entries["store"] = Entry(place, Scalar(pipeline.store, place))
    if isinstance(schedule, Table):
        entries["schedule"] = Entry(tree.entries["schedule"].key_place, schedule.without(*_RESOLVED_BEFORE))
    return {key: entries[key] for key in _HEAD if key in entries}


def _node(entry: Entry, members: Sequence[Draft], tree: Table, params: Params, pipeline: Pipeline) -> Table:
    first = members[0].instance
    scope = Scope(params, first, keep_cells=True)
    own = interpolate(entry.value, ("stages", first.group), entry.key_place, scope, Problems())
    assert isinstance(own, Table), "the pipeline is valid"
    nodes = [pipeline.nodes[draft.id] for draft in members]
    stages = [node for node in nodes if isinstance(node, StageNode)]
    defaults = tree.get("defaults")
    if stages and isinstance(defaults, Table):
        own = merge(Table(defaults.entries, own.place), own)
    unsaid = [_unsaid(draft, pipeline) for draft in members]
    whole = merge(_common(unsaid), own)
    return _for_this_kind(whole, stages[0], pipeline.path) if stages else whole


def _unsaid(draft: Draft, pipeline: Pipeline) -> Table:
    """The defaults of all that a node may say."""
    node = pipeline.nodes[draft.id]
    model = _model(draft)
    dumped = _JSON.validate_json(model.model_validate_json(to_json(draft.table)).model_dump_json(by_alias=True))
    said: dict[str, JsonValue] = {
        key: value for key, value in dumped.items() if key != "inputs" and value not in (None, [], {})
    }
    if isinstance(node, StageNode):
        said["with"] = _JSON.validate_json(node.config.model_dump_json())
    tree = from_plain(said, DEFAULT)
    assert isinstance(tree, Table)
    return tree


def _model(draft: Draft) -> type[BaseModel]:
    if draft.kind is not None:
        return StageSection
    gate, action = draft.text("gate"), draft.text("action")
    return GATES[gate] if gate is not None else ACTIONS[action or ""]


def _common(tables: Sequence[Table]) -> Table:
    """What all tables have in common."""
    first, *others = tables
    entries: dict[str, Entry] = {}
    for key, entry in first.entries.items():
        found = [other.get(key) for other in others]
        inner = [value for value in found if isinstance(value, Table)]
        if isinstance(entry.value, Table) and len(inner) == len(others):
            entries[key] = Entry(entry.key_place, _common([entry.value, *inner]))
        elif all(value == entry.value for value in found):
            entries[key] = entry
    return Table(entries, first.place)


def _for_this_kind(table: Table, node: StageNode, pipeline: Path) -> Table:
    """With the absolute paths of sources, those of a cell apart, and without divisions of what other kinds have."""
    sources = {("with", *path): uri for path, uri in source_values(node.config)}
    for name, value in node.inputs.items():
        if isinstance(value, ExternalSource):
            sources["inputs", name] = value.uri
    changed: Tree = table
    for path, uri in sources.items():
        changed = _with_absolute_path(changed, path, uri, pipeline)
    divided = lookup(changed, ("retry", "on_oom"))
    assert isinstance(divided, Table), "it has a default"
    kept = divided.without(*(name for name in divided.entries if name not in node.retry.on_oom))
    changed = replace(changed, ("retry", "on_oom"), kept)
    assert isinstance(changed, Table)
    return changed


def _with_absolute_path(tree: Tree, path: KeyPath, uri: str, pipeline: Path) -> Tree:
    scalar = lookup(tree, path)
    if not isinstance(scalar, Scalar) or "${" in str(scalar.value):
        return tree
    return replace(tree, path, absolute(uri, folder_of(scalar.written, pipeline)))
