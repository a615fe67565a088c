"""Turns the merged tree of a pipeline file into checked nodes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pipelines.spec.answerable import check_answerable
from pipelines.spec.build_gates import build_eval_gate, build_human_gate, build_select_best, build_set_alias
from pipelines.spec.build_stage import build_stage
from pipelines.spec.diagnostics import Problems, did_you_mean
from pipelines.spec.drafts import make_drafts
from pipelines.spec.gate_sections import ACTIONS, GATES
from pipelines.spec.graph import TYPE_KEYS, Draft, Graph
from pipelines.spec.head import absolute_tracker_folders, build_notify, build_schedule
from pipelines.spec.interpolate import interpolate_sections
from pipelines.spec.location import store_uri
from pipelines.spec.nodes import Node, Pipeline
from pipelines.spec.order import CycleError, in_order
from pipelines.spec.params import read_params
from pipelines.spec.scope import Scope
from pipelines.spec.secret_places import refuse_secrets
from pipelines.spec.sections import PipelineSection
from pipelines.spec.tree import Scalar, Table
from pipelines.spec.validation import validate
from pipelines.spec.wiring import Wiring
from stages.catalog import STAGES

HEAD = ("description", "store", "defaults", "schedule", "notify", "trackers")
"""Sections outside stages that may hold references."""


def build_pipeline(
    tree: Table, path: Path, profile: str | None, profiles: Collection[str], problems: Problems
) -> Pipeline | None:
    """The pipeline, or none when there are problems."""
    params = read_params(tree, problems)
    tree = absolute_tracker_folders(interpolate_sections(tree, HEAD, Scope(params), problems), path)
    refuse_secrets(tree.without("stages", "params"), (), problems)
    section = validate(PipelineSection, tree, (), problems)
    instances, drafts = make_drafts(tree, params, problems)
    nodes, order = _connect(drafts, Graph(instances, drafts), path, problems)
    check_answerable(nodes, problems)
    schedule = build_schedule(section, tree, params, profiles, problems) if section else None
    if section is None or problems.found:
        return None
    store = tree.get("store")
    return Pipeline(
        name=section.name,
        description=section.description,
        path=path,
        profile=profile,
        store=store_uri(section.store, path, store.written if isinstance(store, Scalar) else None),
        params=params.values,
        nodes={node: nodes[node] for node in order},
        schedule=schedule,
        notify=build_notify(section),
        trackers=section.trackers,
    )


def _connect(
    drafts: Sequence[Draft], graph: Graph, path: Path, problems: Problems
) -> tuple[dict[str, Node], Sequence[str]]:
    """The nodes, and an order in which they can run."""
    wirings = {draft.id: Wiring(draft, graph, path) for draft in drafts}
    nodes: dict[str, Node] = {}
    for draft in drafts:
        node = _node(draft, wirings[draft.id], path)
        if node is not None:
            nodes[node.id] = node
    order = _order(wirings, drafts)
    _report(drafts, problems)
    return nodes, order


def _node(draft: Draft, wiring: Wiring, path: Path) -> Node | None:
    if not _is_typed(draft):
        return None
    if draft.table.get("uses") is not None:
        return build_stage(draft, wiring, path)
    match draft.text("gate"), draft.text("action"):
        case "human", None:
            return build_human_gate(draft, wiring)
        case None, "set_alias":
            return build_set_alias(draft, wiring)
        case None, "select_best":
            return build_select_best(draft, wiring)
        case None, _ if "action" in draft.table.entries:
            _report_unknown(draft, "action", ACTIONS)
        case _, None if draft.text("gate") in ("eval", None):
            return build_eval_gate(draft, wiring)
        case _:
            _report_unknown(draft, "gate", GATES)
    return None


def _is_typed(draft: Draft) -> bool:
    """Whether a draft says once what it is; if not, that is all that is reported about it."""
    keys, problems = draft.table.entries, draft.problems
    given = [key for key in TYPE_KEYS if key in keys]
    if len(given) > 1:
        first, second = given[:2]
        message = f"a stage has `uses`, a gate has `gate`, an action has `action`: not both `{first}` and `{second}`"
        problems.add(keys[second].key_place, (*draft.path, second), message)
    elif not given:
        near = [(key, hint) for key in keys if (hint := did_you_mean(key, TYPE_KEYS))]
        for key, hint in near:
            problems.add(keys[key].key_place, (*draft.path, key), f"unknown key{hint}")
        if not near:
            problems.add(draft.place, draft.path, "needs `uses` (a kind of stage), `gate` or `action`")
    elif given == ["uses"] and (kind := draft.text("uses")) is not None and draft.kind is None:
        hint = did_you_mean(kind, STAGES) or f"; known are {', '.join(f'`{known}`' for known in STAGES)}"
        problems.add(keys["uses"].key_place, (*draft.path, "uses"), f"unknown kind of stage `{kind}`{hint}")
    return len(given) == 1


def _report_unknown(draft: Draft, key: str, known: Collection[str]) -> None:
    word = draft.text(key)
    hint = did_you_mean(word or "", known) or f"; known are {', '.join(f'`{one}`' for one in known)}"
    place = draft.table.entries[key].key_place
    draft.problems.add(place, (*draft.path, key), f"unknown kind of {key} `{word}`{hint}")


def _order(wirings: Mapping[str, Wiring], drafts: Sequence[Draft]) -> list[str]:
    try:
        return in_order({node: wiring.needs for node, wiring in wirings.items()})
    except CycleError as error:
        first, second = error.cycle[:2]
        edge = next(edge for edge in wirings[first].edges if edge.needed == second)
        problems = next(draft.problems for draft in drafts if draft.id == first)
        problems.add(edge.place, edge.path, f"stages wait for each other: {error}")
        return []


def _report(drafts: Sequence[Draft], problems: Problems) -> None:
    """What is wrong with every instance of a stage is told once, what is wrong with some names them."""
    groups: dict[str, list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.instance.group, []).append(draft)
    for members in groups.values():
        counts = Counter((found.place, found.message) for draft in members for found in draft.problems.found)
        for draft in members:
            for found in draft.problems.found:
                everywhere = counts[found.place, found.message] == len(members)
                path = found.path if everywhere else ("stages", draft.id, *found.path[2:])
                problems.add(found.place, path, found.message)
