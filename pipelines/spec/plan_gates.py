"""What gates would do: decide on reports, or ask a person, who may have answered."""

from collections.abc import Mapping

from pipelines.spec.approval_key import approval_key
from pipelines.spec.command_line import command_line
from pipelines.spec.nodes import ActionNode, GateNode, HumanGateNode, Node, Pipeline, SelectBest, StageNode
from pipelines.spec.planned import PlannedNode, produced_by
from stages.store.approvals import Approval, read_approval
from stages.store.conditional import ConditionalStore
from stages.store.manifest import Manifest, manifest_digest
from stages.store.moments import shown_time


def plan_gate(
    node: GateNode | HumanGateNode, pipeline: Pipeline, store: ConditionalStore, planned: Mapping[str, PlannedNode]
) -> PlannedNode:
    """A gate that is not left out; one that may ask a person has the key of the answer, once it is known."""
    asked = stages_before(node, planned)
    key = None if asked is None else approval_key(pipeline.name, node.id, asked)
    if isinstance(node, GateNode):
        requirements = " and ".join(requirement.text for requirement in node.require)
        return PlannedNode(node, "gate", requirements, key if node.on_fail == "ask" else None)
    manifests = {node_id: planned[node_id].manifest for node_id in asked or {}}
    decision = None if key is None else read_approval(store, key)
    if decision is not None and _is_about(decision, manifests):
        return PlannedNode(node, "gate", _decided(decision), key, is_settled=True)
    if None in manifests.values() or asked is None:
        who = f" {', '.join(node.approvers)}" if node.approvers else " for approval"
        return PlannedNode(node, "gate", f"asks{who} when that is done which it waits for", key)
    again = f" again, for results were made anew since {decision.by} answered" if decision is not None else ""
    told = f"waits for approval{again}: {command_line(pipeline, 'approve', node.id)}"
    return PlannedNode(node, "gate", told, key)


def stages_before(node: Node, planned: Mapping[str, PlannedNode]) -> dict[str, str] | None:
    """Keys by id of the nearest stages that a node waits for, through gates and actions.

    Of the candidates of an action that selects only the chosen one counts. None while a key or a choice is not known.
    """
    keys = {node_id: planned[node_id].key for node_id in nearest_before(node, planned)}
    known = {node_id: key for node_id, key in keys.items() if key is not None}
    return known if len(known) == len(keys) else None


def nearest_before(node: Node, planned: Mapping[str, PlannedNode]) -> list[str]:
    """Ids of these stages, whether they are chosen or left out; an action that has not selected yet stands for its."""
    found: set[str] = set()
    waiting = list(node.needs)
    seen: set[str] = set()
    while waiting:
        node_id = waiting.pop()
        if node_id in seen:
            continue
        seen.add(node_id)
        one = planned[node_id]
        is_choice = isinstance(one.node, ActionNode) and isinstance(one.node.action, SelectBest)
        if isinstance(one.node, StageNode) or (is_choice and one.chosen is None):
            found.add(node_id)
        elif isinstance(one.node, ActionNode) and one.chosen is not None:
            waiting += _needs_of_choice(one.node, one.chosen, planned)
        else:
            waiting += one.node.needs
    return sorted(found)


def _needs_of_choice(node: ActionNode, chosen: int, planned: Mapping[str, PlannedNode]) -> list[str]:
    compared = {output.stage for outputs in node.inputs.values() for output in outputs}
    taken = [produced_by(planned, outputs[chosen]) for outputs in node.inputs.values()]
    return [need for need in node.needs if need not in compared] + [output.stage for output in taken if output]


def standing_approval(
    store: ConditionalStore, gate_key: str, manifests: Mapping[str, Manifest | None]
) -> Approval | None:
    """What a person decided about just these results; a decision about results that were made again since is void.

    Args:
        store: where decisions are.
        gate_key: of the gate.
        manifests: committed results of the stages that it asks about, by id; none where there is none.
    """
    approval = read_approval(store, gate_key)
    return approval if approval is not None and _is_about(approval, manifests) else None


def _is_about(approval: Approval, manifests: Mapping[str, Manifest | None]) -> bool:
    return all(
        manifest is not None and approval.manifests.get(node_id) == manifest_digest(manifest)
        for node_id, manifest in manifests.items()
    )


def _decided(approval: Approval) -> str:
    verdict = "approved" if approval.approved else "rejected"
    comment = f": {approval.comment}" if approval.comment else ""
    return f"{verdict} by {approval.by} at {shown_time(approval.at)}{comment}"
