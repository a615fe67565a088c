"""The sections of a pipeline file, settings of the stages apart."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_validator

from pipelines.spec.durations import Duration
from pipelines.spec.nodes import Accelerator, Cause
from stages.contract import Strict

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]*$"
PIPELINE_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=64)]
STORE_SCHEMES = ("file", "gs")
ParamType = Literal["int", "float", "bool", "str", "model_source"]


class ParamSection(Strict):
    """A value that `${params.NAME}` stands for, and that `--set params.NAME=VALUE` replaces."""

    type: ParamType
    """What it may hold; a `model_source` is a URI of a base model."""
    default: JsonValue = None
    """The value without `--set`; a parameter without one must be set."""
    description: str = ""
    """What it is for."""


class PreemptedSection(Strict):
    """What happens when the machine is taken away."""

    max: Annotated[int, Field(ge=0)] = 50
    """How often the stage is started again; these do not count as retries."""


class RetrySection(Strict):
    """When a failed attempt is followed by another one."""

    max: Annotated[int, Field(ge=0, le=100)] = 2
    """How often."""
    delay: Annotated[tuple[Duration, ...], Field(min_length=1)] = (30.0, 120.0)
    """Waiting time before each retry; the last one repeats."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.3
    """The waiting time is stretched by a random part of up to this much."""
    on: tuple[Cause, ...] = ("infra", "storage")
    """Causes that are worth a retry."""
    preempted: PreemptedSection = PreemptedSection()
    """What happens when the machine is taken away."""


class TimeoutSection(Strict):
    """How long an attempt may take."""

    total: Annotated[Duration, Field(gt=0)] = 12 * 3600.0
    """From its start to its end."""
    stall: Annotated[Duration, Field(gt=0)] = 20 * 60.0
    """Between two signs of progress."""
    grace: Duration = 3 * 60.0
    """From asking it to stop until it is killed."""


class ResourcesSection(Strict):
    """Where a stage runs."""

    accelerator: Accelerator = "cpu"
    """The devices that it needs for itself."""
    share: bool = False
    """Whether it may run while another stage uses the same devices."""
    python: str | None = None
    """The interpreter of its process; none is the one that runs the pipeline."""


class DefaultsSection(Strict):
    """Sections that are merged under every stage."""

    retry: RetrySection = RetrySection()
    """When a failed attempt is followed by another one."""
    timeout: TimeoutSection = TimeoutSection()
    """How long an attempt may take."""
    resources: ResourcesSection = ResourcesSection()
    """Where a stage runs."""


class StageSection(DefaultsSection):
    """A stage: what runs, on what, with which settings."""

    uses: str
    """The kind of stage."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Each input: `${stages.ID.outputs.NAME}`, or the URI of a source."""
    with_: Annotated[dict[str, JsonValue], Field(alias="with")] = Field(default_factory=dict)
    """The settings of this kind of stage."""
    needs: tuple[str, ...] = ()
    """Stages and gates that come first though nothing is taken from them."""
    rev: Annotated[int, Field(ge=0)] = 0
    """Raise it to have the stage run again under a new identity."""


class GateInputs(Strict):
    """What a gate looks at."""

    report: str
    """The report whose metrics are required: `${stages.ID.outputs.report}`."""


class GateSection(Strict):
    """Conditions that must hold for the pipeline to go on."""

    gate: Literal["eval"]
    """The kind of gate; `eval` looks at an evaluation."""
    inputs: GateInputs
    """What it looks at."""
    require: Annotated[tuple[str, ...], Field(min_length=1)]
    """Conditions, such as `accuracy >= 0.5` or `delta_low(accuracy, '${stages.ID.outputs.report}') > 0`."""
    on_fail: Literal["stop", "skip_downstream"] = "stop"
    """Whether the run fails, or only what needs this gate is skipped."""
    needs: tuple[str, ...] = ()
    """Stages and gates that come first though nothing is taken from them."""


class HeadSection(Strict):
    """What a pipeline file and a profile have in common, stages apart."""

    description: str = ""
    """What the pipeline is for."""
    store: Annotated[str, Field(min_length=1)] | None = None
    """Where results are kept; none is `.temper/store` in the project that the file belongs to."""
    params: dict[Name, JsonValue] = Field(default_factory=dict)
    """Parameters by name."""
    defaults: dict[str, JsonValue] = Field(default_factory=dict)
    """Sections that are merged under every stage."""

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: str | None) -> str | None:
        """A store in memory is left out: stages are processes, and each would have its own."""
        scheme, separator, _ = (store or "").partition("://")
        if separator and scheme not in STORE_SCHEMES:
            raise ValueError(f"expected a path, {' or '.join(f'{known}://' for known in STORE_SCHEMES)}")
        return store


class OverlaySection(HeadSection):
    """A profile: a part of a pipeline that is merged over the rest of the file."""

    stages: dict[Name, JsonValue] = Field(default_factory=dict)
    """Parts of stages and gates."""


class PipelineSection(HeadSection):
    """A pipeline file."""

    version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=PIPELINE_NAME_PATTERN, max_length=64)]
    """Name of the pipeline; its runs are kept under it."""
    stages: Annotated[dict[Name, JsonValue], Field(min_length=1)]
    """Stages and gates by id."""
    profiles: dict[Name, JsonValue] = Field(default_factory=dict)
    """Overlays by name, chosen with `--profile`."""
