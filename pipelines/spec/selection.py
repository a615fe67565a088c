"""Which nodes a run is about: `--only`, `--until`, `--force` and `--refresh`.

Each names a node, a fanned-out stage and with it all its instances, or those that have some values: `dpo[beta=0.1]`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.expand import label
from pipelines.spec.nodes import Node, Pipeline, StageNode
from pipelines.spec.scalars import plain_scalar
from stages.errors import UserError


@dataclass(frozen=True)
class Selection:
    """The chosen nodes.

    Attributes:
        chosen: their ids.
        flag: what the others are left out by.
        force: stages to run again, for this and all later plans.
        refresh: stages to run again in this run.
    """

    chosen: Collection[str]
    flag: str = ""
    force: Collection[str] = ()
    refresh: Collection[str] = ()


def select(
    pipeline: Pipeline,
    only: Sequence[str],
    until: str | None,
    force: Sequence[str] = (),
    refresh: Sequence[str] = (),
) -> Selection:
    """The nodes of `--only`, those up to and with `--until`, or all.

    Raises:
        UserError: an unknown node, flags that exclude each other, or a stage to run again that is none or left out.
    """
    chosen, flag = _chosen(pipeline, only, until)
    forced = _again(pipeline, force, "--force", chosen, flag)
    refreshed = _again(pipeline, refresh, "--refresh", chosen, flag)
    if both := sorted(forced & refreshed):
        raise UserError(f"--force and --refresh exclude each other: both name {', '.join(both)}")
    return Selection(chosen, flag, forced, refreshed)


def _again(
    pipeline: Pipeline, names: Sequence[str], flag: str, chosen: Collection[str], left_out_by: str
) -> frozenset[str]:
    found = _expand(pipeline, names, flag)
    for node_id in sorted(found):
        if node_id not in chosen:
            raise UserError(f"{flag} {node_id}: left out by {left_out_by}")
        if not isinstance(pipeline.nodes[node_id], StageNode):
            raise UserError(f"{flag} {node_id}: gates and actions are decided anew in every run")
    return found


def _chosen(pipeline: Pipeline, only: Sequence[str], until: str | None) -> tuple[frozenset[str], str]:
    if only and until is not None:
        raise UserError("--only and --until exclude each other: give one of them")
    if only:
        return _expand(pipeline, only, "--only"), "--only"
    if until is None:
        return frozenset(pipeline.nodes), ""
    return _with_needs(pipeline.nodes, _expand(pipeline, [until], "--until")), "--until"


def _expand(pipeline: Pipeline, names: Sequence[str], flag: str) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        members = {node_id for node_id, node in pipeline.nodes.items() if _is_named(node, name)}
        if not members:
            known = dict.fromkeys([*pipeline.nodes, *filter(None, map(_group, pipeline.nodes.values()))])
            hint = did_you_mean(name, known) or f"; it has {', '.join(pipeline.nodes)}"
            raise UserError(f"{flag} {name}: no stage of {pipeline.name}{hint}")
        found |= members
    return frozenset(found)


def _is_named(node: Node, name: str) -> bool:
    """By its id, its group, or some values of its cell, in any order and however numbers are written."""
    if name in (node.id, _group(node)):
        return True
    (group, cell), (own_group, own_cell) = _parts(name), _parts(node.id)
    return bool(cell) and group == own_group and cell <= own_cell


def _parts(name: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Group and cell of `dpo[beta=0.1,lr=1e-6]`."""
    group, _, cell = name.removesuffix("]").partition("[")
    pairs = (part.partition("=") for part in cell.split(",") if part)
    return group, frozenset((axis.strip(), label(plain_scalar(value.strip()))) for axis, _, value in pairs)


def _group(node: Node) -> str:
    return node.group if isinstance(node, StageNode) else ""


def _with_needs(nodes: Mapping[str, Node], last: Collection[str]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(last)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(nodes[node].needs)
    return frozenset(found)
