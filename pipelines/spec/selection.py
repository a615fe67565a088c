"""Which nodes a run is about: `--only` and `--until`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.nodes import Node, Pipeline
from stages.errors import UserError


@dataclass(frozen=True)
class Selection:
    """The chosen nodes, and the flag that the others are left out by."""

    chosen: Collection[str]
    flag: str = ""


def select(pipeline: Pipeline, only: Sequence[str], until: str | None) -> Selection:
    """The nodes of `--only`, those up to and with `--until`, or all.

    Raises:
        UserError: an unknown node, or both flags.
    """
    if only and until is not None:
        raise UserError("--only and --until exclude each other: give one of them")
    check_known(pipeline, only, "--only")
    if only:
        return Selection(frozenset(only), "--only")
    if until is None:
        return Selection(frozenset(pipeline.nodes))
    check_known(pipeline, [until], "--until")
    return Selection(_with_needs(pipeline.nodes, until), "--until")


def check_known(pipeline: Pipeline, names: Sequence[str], flag: str) -> None:
    """Check the ids that a flag names.

    Raises:
        UserError: one is no node of the pipeline.
    """
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
