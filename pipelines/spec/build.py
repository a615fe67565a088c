"""Turns the merged tree of a pipeline file into checked nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.spec.diagnostics import Problems, did_you_mean
from pipelines.spec.interpolate import interpolate
from pipelines.spec.location import store_uri
from pipelines.spec.nodes import GateNode, Node, Pipeline, Resources, Retry, StageNode, Timeout
from pipelines.spec.order import CycleError, in_order
from pipelines.spec.overlay import merge
from pipelines.spec.params import read_params
from pipelines.spec.sections import (
    DefaultsSection,
    GateSection,
    PipelineSection,
    ResourcesSection,
    RetrySection,
    StageSection,
    TimeoutSection,
)
from pipelines.spec.settings import read_settings
from pipelines.spec.tree import Entry, Scalar, Table
from pipelines.spec.validation import validate
from pipelines.spec.wiring import Wiring
from stages.catalog import STAGES


@dataclass(frozen=True)
class _Draft:
    """A node's table with the defaults under it."""

    id: str
    entry: Entry
    table: Table

    @property
    def path(self) -> tuple[str, str]:
        return ("stages", self.id)


def build_pipeline(tree: Table, path: Path, profile: str | None, problems: Problems) -> Pipeline | None:
    """The pipeline, or none when there are problems."""
    params = read_params(tree, problems)
    tree = interpolate(tree, params, problems)
    section = validate(PipelineSection, tree, (), problems)
    drafts = _drafts(tree, problems)
    kinds = {draft.id: kind for draft in drafts if (kind := _kind(draft, problems))}
    wiring = Wiring({draft.id: draft.table for draft in drafts}, kinds, problems)
    nodes: dict[str, Node] = {}
    for draft in drafts:
        node = _gate(draft, wiring, problems) if _is_gate(draft) else _stage(draft, kinds, wiring, path, problems)
        if node is not None:
            nodes[node.id] = node
    order = _order(wiring, problems)
    if section is None or problems.found:
        return None
    return Pipeline(
        name=section.name,
        description=section.description,
        path=path,
        profile=profile,
        store=store_uri(section.store, path),
        params=params.values,
        nodes={node: nodes[node] for node in order},
    )


def _drafts(tree: Table, problems: Problems) -> list[_Draft]:
    stages, defaults = tree.get("stages"), tree.get("defaults")
    if isinstance(defaults, Table):
        validate(DefaultsSection, defaults, ("defaults",), problems, tree.entries["defaults"].key_place)
    if not isinstance(stages, Table):
        return []
    drafts: list[_Draft] = []
    for node, entry in stages.entries.items():
        if not isinstance(entry.value, Table):
            problems.add(entry.key_place, ("stages", node), "expected a mapping of keys to values")
            continue
        under = defaults if isinstance(defaults, Table) and "gate" not in entry.value.entries else None
        table = merge(Table(under.entries, entry.value.place), entry.value) if under else entry.value
        drafts.append(_Draft(node, entry, table))
    return drafts


def _is_gate(draft: _Draft) -> bool:
    return "gate" in draft.table.entries and "uses" not in draft.table.entries


def _kind(draft: _Draft, problems: Problems) -> str | None:
    """The stage's kind; none for a gate, and for a stage whose kind is reported as wrong."""
    keys = draft.table.entries
    if "uses" not in keys and "gate" not in keys:
        near = [(key, hint) for key in keys if (hint := did_you_mean(key, ("uses", "gate")))]
        for key, hint in near:
            problems.add(keys[key].key_place, (*draft.path, key), f"unknown key{hint}")
        if not near:
            problems.add(draft.entry.key_place, draft.path, "needs `uses` (a kind of stage) or `gate`")
        problems.mute(draft.path)
        return None
    if "uses" in keys and "gate" in keys:
        problems.add(keys["gate"].key_place, (*draft.path, "gate"), "a stage has `uses`, a gate has `gate`: not both")
    uses = draft.table.get("uses")
    if not isinstance(uses, Scalar) or not isinstance(uses.value, str):
        return None
    if uses.value not in STAGES:
        hint = did_you_mean(uses.value, STAGES) or f"; known are {', '.join(f'`{kind}`' for kind in STAGES)}"
        problems.add(keys["uses"].key_place, (*draft.path, "uses"), f"unknown kind of stage `{uses.value}`{hint}")
        return None
    return uses.value


def _stage(draft: _Draft, kinds: Mapping[str, str], wiring: Wiring, path: Path, problems: Problems) -> StageNode | None:
    place = draft.entry.key_place
    section = validate(StageSection, draft.table, draft.path, problems, place)
    if draft.id not in kinds:
        return None
    config = read_settings(STAGES[kinds[draft.id]].config, draft.table, draft.path, place, path, problems)
    if section is None:
        return None
    inputs = wiring.stage_inputs(draft.id, section.inputs)
    wiring.add_needs(draft.id, section.needs)
    if config is None:
        return None
    return StageNode(
        id=draft.id,
        kind=section.uses,
        config=config,
        inputs=inputs,
        needs=_needs(wiring, draft.id),
        rev=section.rev,
        retry=_retry(section.retry),
        timeout=_timeout(section.timeout),
        resources=_resources(section.resources),
        place=place,
    )


def _gate(draft: _Draft, wiring: Wiring, problems: Problems) -> GateNode | None:
    place = draft.entry.key_place
    section = validate(GateSection, draft.table, draft.path, problems, place)
    if section is None:
        return None
    report = wiring.gate_report(draft.id, section.inputs.report)
    require = wiring.requirements(draft.id, section.require)
    wiring.add_needs(draft.id, section.needs)
    if report is None:
        return None
    return GateNode(draft.id, {"report": report}, require, section.on_fail, _needs(wiring, draft.id), place)


def _needs(wiring: Wiring, node: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(edge.needed for edge in wiring.edges[node]))


def _order(wiring: Wiring, problems: Problems) -> list[str]:
    try:
        return in_order({node: [edge.needed for edge in edges] for node, edges in wiring.edges.items()})
    except CycleError as error:
        first, second = error.cycle[:2]
        edge = next(edge for edge in wiring.edges[first] if edge.needed == second)
        problems.add(edge.place, edge.path, f"stages wait for each other: {error}")
        return []


def _retry(section: RetrySection) -> Retry:
    return Retry(section.max, section.delay, section.jitter, section.on, section.preempted.max)


def _timeout(section: TimeoutSection) -> Timeout:
    return Timeout(section.total, section.stall, section.grace)


def _resources(section: ResourcesSection) -> Resources:
    return Resources(section.accelerator, section.share, section.python)
