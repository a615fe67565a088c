"""A resolved pipeline: typed nodes with every reference, profile and override worked in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.spec.diagnostics import Place
from pipelines.spec.references import OutputReference
from pipelines.spec.require import Expression
from stages.contract import Artifact, StageConfigBase

Cause = Literal["infra", "storage", "oom", "stalled", "timeout"]
"""Why an attempt failed, as far as a retry may be asked for."""
Accelerator = Literal["cpu", "gpu", "tpu"]
ParamValue = bool | int | float | str


@dataclass(frozen=True)
class StageOutput:
    """An output of another node."""

    stage: str
    output: str
    artifact: type[Artifact]

    @property
    def reference(self) -> OutputReference:
        return OutputReference(self.stage, self.output)


@dataclass(frozen=True)
class ExternalSource:
    """A source outside the store, as a URI; a relative path is relative to the pipeline file."""

    uri: str
    place: Place


@dataclass(frozen=True)
class Retry:
    """How often a failed attempt is followed by another one; `delay` in seconds, its last value repeats."""

    max: int
    delay: tuple[float, ...]
    jitter: float
    on: tuple[Cause, ...]
    preempted_max: int


@dataclass(frozen=True)
class Timeout:
    """Seconds: of a whole attempt, between two signs of life, and between asking to stop and killing."""

    total: float
    stall: float
    grace: float


@dataclass(frozen=True)
class Resources:
    """Where the child runs; `share` lets it run beside others on the same devices."""

    accelerator: Accelerator
    share: bool
    python: str | None
    """Interpreter of the child; none is the flow's own."""


@dataclass(frozen=True)
class StageNode:
    """A stage of the pipeline; `needs` holds every node that must come first, those of its inputs too."""

    id: str
    kind: str
    config: StageConfigBase
    inputs: Mapping[str, StageOutput | ExternalSource]
    needs: tuple[str, ...]
    rev: int
    retry: Retry
    timeout: Timeout
    resources: Resources
    place: Place


@dataclass(frozen=True)
class Requirement:
    """One condition of a gate: its text, what it means, and the reports that it compares with."""

    text: str
    expression: Expression
    reports: tuple[StageOutput, ...]


@dataclass(frozen=True)
class GateNode:
    """Conditions on its input `report` that decide whether the pipeline goes on."""

    id: str
    inputs: Mapping[str, StageOutput]
    require: tuple[Requirement, ...]
    on_fail: Literal["stop", "skip_downstream"]
    needs: tuple[str, ...]
    place: Place

    @property
    def reports(self) -> tuple[StageOutput, ...]:
        """Every report that the gate is decided on, its own first."""
        compared = [output for requirement in self.require for output in requirement.reports]
        return tuple(dict.fromkeys([*self.inputs.values(), *compared]))


Node = StageNode | GateNode


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
