"""What people decided at gates, as objects that outlive the run which asked."""

from stages.contract import Strict
from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.layout import APPROVALS_FOLDER, approval_path
from stages.store.records import decode, encode, read_record


class Approval(Strict):
    """What `approvals/{gate_key}.json` says."""

    gate_key: str
    """Identity of the gate: its name, and the keys of the stages that it waits for."""
    pipeline: str
    gate: str
    approved: bool
    by: str
    at: str
    """UTC, ISO 8601."""
    comment: str = ""
    stages: dict[str, str]
    """Keys of the stages that the gate waits for, by their names in the pipeline."""
    manifests: dict[str, str]
    """Digests of their manifests when it was decided, as `manifest_digest` gives them."""


def read_approval(store: ConditionalStore, gate_key: str) -> Approval | None:
    """The decision that stands, or None if nobody decided."""
    return read_record(store, approval_path(gate_key), Approval)


def write_approval(store: ConditionalStore, approval: Approval) -> Approval:
    """Record a decision, and return the one that stands.

    A decision that says the same about the same results as one before changes nothing; any other replaces it.
    """
    path = approval_path(approval.gate_key)
    while True:
        stored = store.get(path)
        standing = None if stored is None else decode(Approval, stored.data, store.location(path))
        if standing is not None and _decides(standing) == _decides(approval):
            return standing
        try:
            if stored is None:
                store.create(path, encode(approval))
            else:
                store.swap(path, encode(approval), stored.generation)
            return approval
        except PreconditionFailed:
            # Another decision came between, or ours took effect and its answer was lost: look again.
            continue


def _decides(approval: Approval) -> tuple[bool, dict[str, str], dict[str, str]]:
    return approval.approved, approval.stages, approval.manifests


def list_approvals(store: ConditionalStore) -> list[Approval]:
    """All decisions that stand."""
    found = (read_record(store, listed.path, Approval) for listed in store.list(APPROVALS_FOLDER))
    return [approval for approval in found if approval is not None]
