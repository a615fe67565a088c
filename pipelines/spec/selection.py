"""Which nodes a run is about: `--only`, `--until` and `--force`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.nodes import GateNode, Node, Pipeline
from stages.errors import UserError


@dataclass(frozen=True)
class Selection:
    """The chosen nodes, and the flag that the others are left out by."""

    chosen: Collection[str]
    flag: str = ""


def select(pipeline: Pipeline, only: Sequence[str], until: str | None, force: Sequence[str] = ()) -> Selection:
    """The nodes of `--only`, those up to and with `--until`, or all.

    Raises:
        UserError: an unknown node, both flags, or a forced node that is a gate or left out.
    """
    selection = _chosen(pipeline, only, until)
    _check_known(pipeline, force, "--force")
    for name in force:
        if name not in selection.chosen:
            raise UserError(f"--force {name}: left out by {selection.flag}")
        if isinstance(pipeline.nodes[name], GateNode):
            raise UserError(f"--force {name}: a gate is decided anew in every run")
    return selection


def _chosen(pipeline: Pipeline, only: Sequence[str], until: str | None) -> Selection:
    if only and until is not None:
        raise UserError("--only and --until exclude each other: give one of them")
    _check_known(pipeline, only, "--only")
    if only:
        return Selection(frozenset(only), "--only")
    if until is None:
        return Selection(frozenset(pipeline.nodes))
    _check_known(pipeline, [until], "--until")
    return Selection(_with_needs(pipeline.nodes, until), "--until")


def _check_known(pipeline: Pipeline, names: Sequence[str], flag: str) -> None:
    for name in names:
        if name not in pipeline.nodes:
            hint = did_you_mean(name, pipeline.nodes) or f"; it has {', '.join(pipeline.nodes)}"
            raise UserError(f"{flag} {name}: no stage of {pipeline.name}{hint}")


def _with_needs(nodes: Mapping[str, Node], last: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(nodes[node].needs)
    return frozenset(found)
