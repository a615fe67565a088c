"""A resolved pipeline: typed nodes with every reference, profile and override worked in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipelines.spec.diagnostics import Place
from pipelines.spec.expressions import Expression
from pipelines.spec.references import AliasReference, OutputReference
from stages.contract import Artifact, StageConfigBase
from stages.trackers import Trackers

Cause = Literal["infra", "storage", "oom", "stalled", "timeout"]
"""Why an attempt failed, as far as a retry may be asked for."""
Accelerator = Literal["cpu", "gpu", "tpu"]
CacheMode = Literal["use", "refresh", "off"]
"""Whether a committed result is reused: `refresh` runs the stage again once in each run, `off` each time."""
ResumePolicy = Literal["eager", "fresh", "none"]
"""Which saved steps count: of any attempt of the key, of this run's attempts, or none."""
OnConflict = Literal["wait", "fail", "takeover"]
"""What to do when another run works on the same stage."""
IdentityMode = Literal["declared", "strict"]
"""Whether a key holds what a result is meant to depend on, or source, hardware and compiler too."""
ParamValue = bool | int | float | str


@dataclass(frozen=True)
class StageOutput:
    """An output of another node: a stage, or an action that selects one."""

    stage: str
    output: str
    artifact: type[Artifact]

    @property
    def reference(self) -> OutputReference:
        return OutputReference(self.stage, self.output)


@dataclass(frozen=True)
class AliasOutput:
    """What an alias of the store points to when the plan is made: its checkpoint, or the report that goes with it."""

    alias: str
    artifact: type[Artifact]
    place: Place

    @property
    def reference(self) -> AliasReference:
        return AliasReference(self.alias)


@dataclass(frozen=True)
class ExternalSource:
    """A source outside the store, as a URI; a relative path is relative to the pipeline file."""

    uri: str
    place: Place


StageInputSpec = StageOutput | AliasOutput | ExternalSource
"""What a stage may take."""


@dataclass(frozen=True)
class Retry:
    """How often a failed attempt is followed by another one; `delay` in seconds, its last value repeats."""

    max: int
    delay: tuple[float, ...]
    jitter: float
    on: tuple[Cause, ...]
    preempted_max: int
    on_oom: Mapping[str, int] = field(default_factory=dict)
    """Execution settings that an attempt after one that ran out of memory divides, and by how much."""


@dataclass(frozen=True)
class Timeout:
    """Seconds: of a whole attempt, between two signs of life, and between asking to stop and killing."""

    total: float
    stall: float
    grace: float


@dataclass(frozen=True)
class Resume:
    """What a stage goes on from and how much of it is kept.

    Attributes:
        policy: which saved steps count.
        every: seconds after which a step is saved even if its stage's own cadence has not come.
        keep_last: the newest steps that an attempt keeps.
        keep_every: steps that are multiples of it stay too, if given.
    """

    policy: ResumePolicy = "eager"
    every: float = 600.0
    keep_last: int = 2
    keep_every: int | None = None


@dataclass(frozen=True)
class Resources:
    """Where the child runs; `share` lets it run beside others on the same devices."""

    accelerator: Accelerator
    share: bool
    python: str | None
    """Interpreter of the child; none is the flow's own."""
    count: int | None = None
    """Devices of a GPU host that the stage takes; none is all."""
    num_processes: int = 1
    """Processes of one JAX run."""
    pool: str | None = None
    """A limit on how many stages run at once, shared by all pipelines of a server."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the child; a `secret://name` is resolved there."""


@dataclass(frozen=True)
class Condition:
    """A condition: its text, what it means, and the reports that it looks at beside a gate's own."""

    text: str
    expression: Expression
    reports: tuple[StageOutput | AliasOutput, ...]


@dataclass(frozen=True)
class StageNode:
    """A stage of the pipeline; `needs` holds every node that must come first, those of its inputs too.

    Attributes:
        group: its name in the file; a fanned-out stage's id is this with the values of its cell in brackets.
        max_parallel: how many of its group run at once; none is no limit.
        condition: whether it runs at all; one that looks at no report is decided by the plan.
    """

    id: str
    kind: str
    config: StageConfigBase
    inputs: Mapping[str, StageInputSpec]
    needs: tuple[str, ...]
    rev: int
    retry: Retry
    timeout: Timeout
    resources: Resources
    place: Place
    group: str = ""
    max_parallel: int | None = None
    condition: Condition | None = None
    cache: CacheMode = "use"
    resume: Resume = Resume()
    on_conflict: OnConflict = "wait"
    identity: IdentityMode = "declared"


@dataclass(frozen=True)
class GateNode:
    """Conditions on its input `report` that decide whether the pipeline goes on; `ask` has a person decide if not."""

    id: str
    inputs: Mapping[str, StageOutput]
    require: tuple[Condition, ...]
    on_fail: Literal["stop", "skip_downstream", "ask"]
    needs: tuple[str, ...]
    place: Place
    condition: Condition | None = None

    @property
    def reports(self) -> tuple[StageOutput | AliasOutput, ...]:
        """Every report that the gate is decided on, its own first."""
        compared = [output for requirement in self.require for output in requirement.reports]
        return tuple(dict.fromkeys([*self.inputs.values(), *compared]))


@dataclass(frozen=True)
class HumanGateNode:
    """A person decides whether the pipeline goes on.

    Attributes:
        approvers: who is asked, for the people who read it; who may answer is up to the server and the store.
        timeout: seconds that the run waits for an answer.
    """

    id: str
    needs: tuple[str, ...]
    approvers: tuple[str, ...]
    timeout: float
    place: Place
    condition: Condition | None = None


@dataclass(frozen=True)
class SetAlias:
    """Points an alias of the store at a checkpoint, and at the report that goes with it."""

    alias: str


@dataclass(frozen=True)
class SelectBest:
    """Takes the candidate whose report has the best value of a metric."""

    metric: str
    mode: Literal["max", "min"]


@dataclass(frozen=True)
class ActionNode:
    """Something small that runs in the flow's process.

    Attributes:
        inputs: `set_alias` takes `checkpoint` and perhaps `report`, `select_best` takes as many `candidates` as
            `reports`, in the same order; a single output is a tuple of one.
    """

    id: str
    action: SetAlias | SelectBest
    inputs: Mapping[str, tuple[StageOutput, ...]]
    needs: tuple[str, ...]
    place: Place
    condition: Condition | None = None


Node = StageNode | GateNode | HumanGateNode | ActionNode


@dataclass(frozen=True)
class Schedule:
    """When a deployed pipeline runs by itself; `overlap` says what a run does that finds the one before still going."""

    cron: str
    timezone: str
    profile: str | None
    params: Mapping[str, ParamValue]
    overlap: Literal["skip", "queue"]


NotifyEvent = Literal["failed", "gate_waiting", "succeeded"]


@dataclass(frozen=True)
class Notify:
    """Whom to tell of what; `to` is an Apprise URL or a `secret://name` that holds one."""

    on: tuple[NotifyEvent, ...]
    to: str


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was found to be valid; `nodes` stand in an order in which they can run."""

    name: str
    description: str
    path: Path
    profile: str | None
    store: str
    """What `open_store` takes."""
    params: Mapping[str, ParamValue]
    nodes: Mapping[str, Node]
    schedule: Schedule | None = None
    notify: Notify | None = None
    trackers: Trackers = field(default_factory=Trackers)
    overrides: tuple[str, ...] = ()
    """What `--set` laid over the file."""
