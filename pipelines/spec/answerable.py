"""Refuses gates that ask a person about what every look at the pipeline makes anew, so that no answer ever counts."""

from collections.abc import Iterator, Mapping

from pipelines.spec.diagnostics import Problems
from pipelines.spec.nodes import GateNode, HumanGateNode, Node, StageNode


def check_answerable(nodes: Mapping[str, Node], problems: Problems) -> None:
    """Adds a problem for each gate that may ask and comes after a stage without a cache."""
    for node in nodes.values():
        if not isinstance(node, HumanGateNode) and not (isinstance(node, GateNode) and node.on_fail == "ask"):
            continue
        uncached = next((stage for stage in _before(node, nodes) if stage.cache == "off"), None)
        if uncached is not None:
            message = (
                f"asks about results that come of `{uncached.id}`, which `cache: {{mode: off}}` makes again each time: "
                "an answer would never count; use `mode: refresh`"
            )
            problems.add(node.place, ("stages", node.id), message)


def _before(node: Node, nodes: Mapping[str, Node]) -> Iterator[StageNode]:
    """Every stage that a node waits for, directly or not, as far as it is known."""
    seen: set[str] = set()
    waiting = list(node.needs)
    while waiting:
        found = nodes.get(waiting.pop(0))
        if found is None or found.id in seen:
            continue
        seen.add(found.id)
        waiting += found.needs
        if isinstance(found, StageNode):
            yield found
