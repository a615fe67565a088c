"""What a person decided at a gate, as the object in the store that outlives the run: from the form or the command."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.spec.nodes import StageNode
from pipelines.spec.plan_gates import stages_before
from pipelines.spec.planned import PlannedNode
from stages.errors import UserError
from stages.store.approvals import Approval, write_approval
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import manifest_digest, read_manifest
from stages.store.moments import now


@dataclass(frozen=True)
class AskedAbout:
    """What a gate asks about.

    Attributes:
        gate_key: identity of the gate.
        stages: keys by id of the stages that it waits for.
        manifests: digests of what they have committed now.
    """

    gate_key: str
    stages: Mapping[str, str]
    manifests: Mapping[str, str]


def asked_about(store: ConditionalStore, nodes: Mapping[str, PlannedNode], gate: PlannedNode) -> AskedAbout:
    """What a gate would ask about now.

    Raises:
        UserError: it is not committed.
    """
    stages = stages_before(gate.node, nodes)
    if gate.key is None or stages is None:
        raise UserError(
            f"{gate.node.id}: the stages that it waits for are not known yet: there is nothing to decide about"
        )
    manifests = {node_id: _digest(store, nodes[node_id], key) for node_id, key in stages.items()}
    return AskedAbout(gate.key, stages, manifests)


def record_answer(
    store: ConditionalStore,
    nodes: Mapping[str, PlannedNode],
    gate: PlannedNode,
    pipeline: str,
    *,
    approved: bool,
    by: str,
    comment: str,
) -> Approval:
    """Write down an answer to a gate about the results as they are committed now; returns the one that stands.

    Raises:
        UserError: what it would be about is not committed.
    """
    asked = asked_about(store, nodes, gate)
    approval = Approval(
        gate_key=asked.gate_key,
        pipeline=pipeline,
        gate=gate.node.id,
        approved=approved,
        by=by,
        at=now(),
        comment=comment,
        stages=dict(asked.stages),
        manifests=dict(asked.manifests),
    )
    return write_approval(store, approval)


def _digest(store: ConditionalStore, planned: PlannedNode, key: str) -> str:
    assert isinstance(planned.node, StageNode)
    manifest = read_manifest(store, StagePaths(planned.node.kind, key))
    if manifest is None:
        raise UserError(f"{planned.node.id} is not committed yet: there is nothing to decide about")
    return manifest_digest(manifest)
