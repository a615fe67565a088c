"""What a plan is: a decision for every node of a pipeline, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipelines.spec.field_changes import FieldChange
from pipelines.spec.nodes import ActionNode, Condition, Node, Pipeline, SetAlias, StageNode, StageOutput
from stages.contract import Artifact, ReportArtifact, SourceRef
from stages.store.aliases import AliasRecord
from stages.store.holder import Holder
from stages.store.manifest import Manifest

Decision = Literal["reuse", "resume", "run", "wait", "gate", "action", "skip"]


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
        key: identity; of a human gate that of its approval. None for what has no result of its own, and while it is
            not known yet: the plan that is made again once the reason for that is settled knows it.
        payload: what the key is the hash of.
        sources: what its inputs and settings name outside the store, by URI, with the content that went into the key.
        changes: what differs from the nearest committed identity.
        resume_step: the committed step that the stage goes on from.
        manifest: the committed result to reuse.
        damage: why a committed result cannot be reused; `set_damaged_aside` before the stage runs.
        same_as: an earlier node with the same key, which does the work of this one.
        salt: what makes the key one of this run's own; later plans of the run keep it.
        pending: a condition to look at before the node runs, once the reports are there that it is about.
        chosen: of an action that selects: which candidate, from 0.
        is_settled: of an action: it would change nothing; of a human gate: somebody has decided.
        holder: who works on the stage now, in another run.
        drift: what changed in the source of the stage since the result was committed.
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
    salt: str | None = None
    pending: Condition | None = None
    chosen: int | None = None
    is_settled: bool = False
    holder: Holder | None = None
    drift: str = ""

    @property
    def kind(self) -> str:
        """The kind of a stage, the name of an action, or `gate`."""
        match self.node:
            case StageNode(kind=kind):
                return kind
            case ActionNode(action=action):
                return "set_alias" if isinstance(action, SetAlias) else "select_best"
            case _:
                return "gate"


@dataclass(frozen=True)
class CommittedOutput:
    """An output of a committed stage."""

    manifest: Manifest
    output: str


@dataclass(frozen=True)
class AliasedResult:
    """Where an alias points to while the plan stands, and the committed results there."""

    record: AliasRecord
    checkpoint: Manifest
    report: Manifest | None

    def output(self, artifact: type[Artifact]) -> CommittedOutput | None:
        """What the alias means where an artifact of this type is wanted; none if it has no report."""
        if not issubclass(artifact, ReportArtifact):
            return CommittedOutput(self.checkpoint, self.record.checkpoint.output)
        if self.report is None or self.record.report is None:
            return None
        return CommittedOutput(self.report, self.record.report.output)


@dataclass(frozen=True)
class StageEstimate:
    """What a stage would take: seconds of work and bytes of outputs, as the median of so many commits."""

    seconds: float
    bytes: int
    num_commits: int


@dataclass(frozen=True)
class Estimate:
    """What a plan would take.

    Attributes:
        stages: of those that would run, by id.
        unknown: ids of those that would run, and whose kind was never committed.
        num_reused: results that are reused.
        saved_seconds: what these took when they were made.
    """

    stages: Mapping[str, StageEstimate] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    num_reused: int = 0
    saved_seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The decisions for a pipeline, in an order in which the nodes can run."""

    pipeline: Pipeline
    nodes: Mapping[str, PlannedNode]
    aliases: Mapping[str, AliasedResult] = field(default_factory=dict)
    """Every alias that the pipeline takes something from."""
    estimate: Estimate = Estimate()

    @property
    def has_work(self) -> bool:
        """Whether a stage has to run. Gates and actions are no work: they are decided from what is committed."""
        return any(planned.decision in ("run", "resume", "wait") for planned in self.nodes.values())

    @property
    def has_effects(self) -> bool:
        """Whether an alias would be set, as far as is known and unless a gate is against it."""
        return any(
            isinstance(planned.node, ActionNode)
            and isinstance(planned.node.action, SetAlias)
            and planned.decision == "action"
            and not planned.is_settled
            for planned in self.nodes.values()
        )


def produced_by(nodes: Mapping[str, PlannedNode], output: StageOutput) -> StageOutput | None:
    """The stage's output that an output means: its own, or that of the candidate which an action chose.

    None while the action has not chosen.
    """
    planned = nodes[output.stage]
    if not isinstance(planned.node, ActionNode):
        return output
    if planned.chosen is None:
        return None
    side = "reports" if output.output == "report" else "candidates"
    return produced_by(nodes, planned.node.inputs[side][planned.chosen])
