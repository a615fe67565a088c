"""Decides for every node of a pipeline whether it is reused, resumed or run, and why."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.explain import FieldChange, History, reason_to_run
from pipelines.spec.identity import ExternalIdentity, Identity, StoredIdentity, identity_payload, key_of
from pipelines.spec.nodes import ExternalSource, GateNode, Node, Pipeline, StageNode, StageOutput
from pipelines.spec.selection import Selection, select
from stages.catalog import STAGES
from stages.contract import ExternalInput, SourceRef, StageInput, StoredInput
from stages.errors import UserError
from stages.sources.resolve import resolve
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest, check_files, claim_manifest, quarantine, why_lost
from stages.store.progress import committed_points
from stages.store.salts import read_salt, write_salt

Decision = Literal["reuse", "resume", "run", "gate", "skip"]


@dataclass(frozen=True)
class Damage:
    """A committed result whose files are not as they were committed."""

    attempt: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class PlannedNode:
    """What happens to a node.

    Attributes:
        node: the node.
        decision: what happens.
        reason: why, for people.
        key: identity; none for a gate.
        payload: what the key is the hash of.
        sources: what its inputs and settings name outside the store, by URI, with the content that went into the key.
        changes: what differs from the nearest committed identity.
        resume_step: the committed step that the stage goes on from.
        manifest: the committed result to reuse.
        damage: why a committed result cannot be reused; `set_damaged_aside` before the stage runs.
        same_as: an earlier node with the same key, which does the work of this one.
    """

    node: Node
    decision: Decision
    reason: str
    key: str | None = None
    payload: bytes | None = None
    sources: Mapping[str, SourceRef] = field(default_factory=dict)
    changes: tuple[FieldChange, ...] = ()
    resume_step: int | None = None
    manifest: Manifest | None = None
    damage: Damage | None = None
    same_as: str | None = None


@dataclass(frozen=True)
class Plan:
    """The decisions for a pipeline, in an order in which the nodes can run."""

    pipeline: Pipeline
    nodes: Mapping[str, PlannedNode]

    @property
    def has_work(self) -> bool:
        """Whether a stage has to run. Gates alone are no work: they are decided from what is committed."""
        return any(planned.decision in ("run", "resume") for planned in self.nodes.values())

    def to_json(self) -> str:
        """The plan for other programs and for the archive."""
        return json.dumps(
            {
                "pipeline": self.pipeline.name,
                "file": str(self.pipeline.path),
                "profile": self.pipeline.profile,
                "store": self.pipeline.store,
                "params": dict(self.pipeline.params),
                "has_work": self.has_work,
                "nodes": [_plain(planned) for planned in self.nodes.values()],
            },
            indent=2,
        )


def make_plan(
    pipeline: Pipeline,
    store: ConditionalStore,
    force: Sequence[str] = (),
    only: Sequence[str] = (),
    until: str | None = None,
) -> Plan:
    """Compare a pipeline with what its store holds.

    Reads only, but for two things: a hit on a result that is condemned as garbage saves it, and `force` writes a new
    salt for each of these stages, which enters their keys in this and in every later plan. A plan that is made again
    for the same run must not force again.

    Raises:
        SpecError: an external input cannot be found.
        UserError: a flag names no stage, or a chosen stage needs what is neither committed nor chosen.
        StorageError: the store cannot be read.
    """
    selection = select(pipeline, only, until, force)
    planner = _Planner(pipeline, store, frozenset(force), selection)
    for node in pipeline.nodes.values():
        planner.add(node)
    return Plan(pipeline, planner.planned)


def stage_inputs(planned: PlannedNode, plan: Plan, manifests: Mapping[str, Manifest]) -> dict[str, StageInput]:
    """The inputs of a stage as its process gets them.

    Args:
        planned: a stage that is to run.
        plan: the plan that it stands in.
        manifests: committed results by key, at least those of the stages that it takes something from.
    """
    assert isinstance(planned.node, StageNode)
    inputs: dict[str, StageInput] = {}
    for name, value in planned.node.inputs.items():
        if isinstance(value, ExternalSource):
            inputs[name] = ExternalInput(source=planned.sources[value.uri])
            continue
        key = plan.nodes[value.stage].key
        assert key is not None, "only stages have outputs"
        manifest = manifests[key]
        inputs[name] = StoredInput(
            stage=manifest.stage,
            key=manifest.key,
            output=value.output,
            folder=manifest.output_folder(value.output),
            files=manifest.outputs[value.output],
        )
    return inputs


def set_damaged_aside(plan: Plan, store: ConditionalStore) -> None:
    """Quarantine the committed results whose files the plan found missing or changed, so that they can be made again.

    Raises:
        StorageError: the store could not be written.
    """
    for planned in plan.nodes.values():
        if planned.damage is not None and planned.key is not None and isinstance(planned.node, StageNode):
            reason = "; ".join(planned.damage.problems)
            quarantine(store, StagePaths(planned.node.kind, planned.key), reason, planned.damage.attempt)


class _Planner:
    def __init__(
        self, pipeline: Pipeline, store: ConditionalStore, force: frozenset[str], selection: Selection
    ) -> None:
        self._folder = pipeline.path.absolute().parent
        self._store = store
        self._history = History(store)
        self._force = force
        self._selection = selection
        self._first_with: dict[str, str] = {}
        self.planned: dict[str, PlannedNode] = {}

    def add(self, node: Node) -> None:
        """Decide about a node; all that it needs is decided already."""
        self.planned[node.id] = self._stage(node) if isinstance(node, StageNode) else self._gate(node)

    def _gate(self, node: GateNode) -> PlannedNode:
        if node.id not in self._selection.chosen:
            return PlannedNode(node, "skip", f"left out by {self._selection.flag}")
        for output in node.reports:
            self._check_available(node, output)
        return PlannedNode(node, "gate", " and ".join(requirement.text for requirement in node.require))

    def _stage(self, node: StageNode) -> PlannedNode:
        sources = self._sources(node)
        payload, key = self._identify(node, sources)
        same_as = self._first_with.get(key)
        if same_as is not None:
            first = self.planned[same_as]
            reason = f"same as {same_as}"
            return PlannedNode(node, "reuse", reason, key, payload, sources, manifest=first.manifest, same_as=same_as)
        planned = self._decide(node, key, payload, sources)
        if planned.decision != "skip":
            self._first_with[key] = node.id
        return planned

    def _decide(self, node: StageNode, key: str, payload: bytes, sources: Mapping[str, SourceRef]) -> PlannedNode:
        paths = StagePaths(node.kind, key)
        manifest = claim_manifest(self._store, paths)
        damage = self._damage(manifest) if manifest else None
        if manifest is not None and damage is None:
            reason = f"committed {manifest.created[:19].replace('T', ' ')} UTC"
            return PlannedNode(node, "reuse", reason, key, payload, sources, manifest=manifest)
        if node.id not in self._selection.chosen:
            return PlannedNode(node, "skip", f"left out by {self._selection.flag}", key, payload, sources)
        for value in node.inputs.values():
            if isinstance(value, StageOutput):
                self._check_available(node, value)
        if manifest is not None and damage is not None:
            reason = _damage_reason(manifest, damage)
            return PlannedNode(node, "run", reason, key, payload, sources, damage=damage)
        return self._fresh(node, key, payload, sources)

    def _fresh(self, node: StageNode, key: str, payload: bytes, sources: Mapping[str, SourceRef]) -> PlannedNode:
        points = committed_points(self._store, StagePaths(node.kind, key))
        if points:
            best = points[0]
            reason = f"from step {best.step} of attempt {best.attempt.partition('-')[0]}"
            return PlannedNode(node, "resume", reason, key, payload, sources, resume_step=best.step)
        lost = why_lost(self._store, StagePaths(node.kind, key))
        if lost is not None:
            return PlannedNode(node, "run", lost, key, payload, sources)
        others = {planned.key for planned in self.planned.values() if planned.key} | {key}
        changes = self._history.changes(node.kind, payload, others)
        reason = reason_to_run(node, changes)
        return PlannedNode(node, "run", reason, key, payload, sources, changes=changes or ())

    def _sources(self, node: StageNode) -> dict[str, SourceRef]:
        found: dict[str, SourceRef] = {}
        for name, value in node.inputs.items():
            if isinstance(value, ExternalSource):
                try:
                    found[value.uri] = resolve(value.uri, self._folder)
                except UserError as error:
                    path = ("stages", node.id, "inputs", name)
                    raise SpecError.at(value.place, str(error), path) from error
        return found

    def _identify(self, node: StageNode, sources: dict[str, SourceRef]) -> tuple[bytes, str]:
        """The payload and its key; adds the sources that the settings name."""

        def digest_of(uri: str) -> str:
            sources[uri] = resolve(uri, self._folder)
            return sources[uri].digest

        identity = Identity(
            kind=node.kind,
            version=STAGES[node.kind].version,
            rev=node.rev,
            config=node.config,
            inputs={name: self._input(node, name, sources) for name in node.inputs},
        )
        try:
            payload = identity_payload(identity, digest_of)
            plain_key = key_of(payload)
            forced = node.id in self._force
            salt = write_salt(self._store, plain_key) if forced else read_salt(self._store, plain_key)
            if salt is not None:
                payload = identity_payload(identity, digest_of, salt)
        except UserError as error:
            raise SpecError.at(node.place, str(error), ("stages", node.id, "with")) from error
        return payload, key_of(payload)

    def _input(self, node: StageNode, name: str, sources: Mapping[str, SourceRef]) -> StoredIdentity | ExternalIdentity:
        value = node.inputs[name]
        if isinstance(value, ExternalSource):
            return ExternalIdentity(sources[value.uri].digest)
        key = self.planned[value.stage].key
        assert key is not None, "only stages have outputs"
        return StoredIdentity(key, value.output)

    def _damage(self, manifest: Manifest) -> Damage | None:
        problems = check_files(self._store, manifest)
        return Damage(manifest.attempt, tuple(problems)) if problems else None

    def _check_available(self, node: Node, output: StageOutput) -> None:
        if self.planned[output.stage].decision == "skip":
            flag = self._selection.flag
            raise UserError(
                f"{flag}: {node.id} takes {output.reference}, which is not committed: choose {output.stage} too"
            )


def _plain(planned: PlannedNode) -> dict[str, JsonValue]:
    return {
        "id": planned.node.id,
        "kind": planned.node.kind if isinstance(planned.node, StageNode) else "gate",
        "needs": list(planned.node.needs),
        "decision": planned.decision,
        "reason": planned.reason,
        "key": planned.key,
        "changes": [{"path": one.path, "before": one.before, "after": one.after} for one in planned.changes],
        "resume_step": planned.resume_step,
        "same_as": planned.same_as,
    }


def _damage_reason(manifest: Manifest, damage: Damage) -> str:
    total = sum(len(entries) for entries in manifest.outputs.values())
    missing = all(problem.endswith(": missing") for problem in damage.problems)
    what = "missing" if missing else "missing or changed"
    return f"{len(damage.problems)} of {total} objects {what}: run again"
