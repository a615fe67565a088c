"""The sections of a stage in a pipeline file, its settings apart."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue, WithJsonSchema

from pipelines.spec.durations import Duration
from pipelines.spec.nodes import Accelerator, CacheMode, Cause, IdentityMode, OnConflict, ResumePolicy
from stages.contract import Strict

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=64)]
DIVISOR_PATTERN = r"^/([2-9]|[1-9][0-9]{1,3})$"


def parse_divisor(value: object) -> int:
    """The number that a setting is divided by, from text such as `/2`.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, str) and re.fullmatch(DIVISOR_PATTERN, value):
        return int(value[1:])
    raise ValueError("expected a division such as /2")


Divisor = Annotated[int, BeforeValidator(parse_divisor), WithJsonSchema({"type": "string", "pattern": DIVISOR_PATTERN})]


_MATRIX = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": NAME_PATTERN},
    "additionalProperties": {"type": "array", "minItems": 1, "items": {"type": ["number", "string", "boolean"]}},
}


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
    on_oom: dict[str, Divisor] = Field(default_factory=dict)
    """What the next attempt divides after one that ran out of memory, such as `{train_micro_batch: /2}`: settings that
    are no part of the identity. With one, `oom` is worth a retry."""


class TimeoutSection(Strict):
    """How long an attempt may take."""

    total: Annotated[Duration, Field(gt=0)] = 12 * 3600.0
    """From its start to its end."""
    stall: Annotated[Duration, Field(gt=0)] = 20 * 60.0
    """Between two signs of progress."""
    grace: Duration = 3 * 60.0
    """From asking it to stop until it is killed."""


class CacheSection(Strict):
    """Whether a committed result is reused."""

    mode: CacheMode = "use"
    """`use` reuses it, `refresh` makes it once again in each run, `off` each time."""


class ResumeSection(Strict):
    """What an attempt goes on from."""

    policy: ResumePolicy = "eager"
    """`eager` goes on from the steps of any attempt, `fresh` from those of this run, `none` starts anew."""
    every: Annotated[Duration, Field(gt=0)] = 10 * 60.0
    """A step is saved after this time even if its stage's own cadence has not come."""
    keep_last: Annotated[int, Field(ge=1)] = 2
    """Newest steps that are kept."""
    keep_every: Annotated[int, Field(ge=1)] | None = None
    """Steps that are multiples of it are kept too."""


class ResourcesSection(Strict):
    """Where a stage runs."""

    accelerator: Accelerator = "cpu"
    """The devices that it needs for itself."""
    count: Annotated[int, Field(ge=1)] | None = None
    """How many devices of a host it takes; none is all of them."""
    num_processes: Annotated[int, Field(ge=1)] = 1
    """Processes on this machine that work on it together, over `jax.distributed`; for `cpu` only."""
    pool: Name | None = None
    """A limit of the server on how many stages run at once, whatever their pipeline."""
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(default_factory=dict)
    """Environment variables of its process; `secret://NAME` is replaced there, `${run.id}` and `${run.date}` before."""
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
    cache: CacheSection = CacheSection()
    """Whether a committed result is reused."""
    resume: ResumeSection = ResumeSection()
    """What an attempt goes on from."""
    on_conflict: OnConflict = "wait"
    """What to do when another run works on the same stage: wait for its result, fail, or take the work over."""
    identity: IdentityMode = "declared"
    """`strict` has a stage run again when its source, the hardware or the compiler changed, for comparing bits."""
    resources: ResourcesSection = ResourcesSection()
    """Where a stage runs."""


class StageSection(DefaultsSection):
    """A stage: what runs, on what, with which settings."""

    uses: str
    """The kind of stage."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Each input: `${stages.ID.outputs.NAME}`, `${aliases.NAME}`, or the URI of a source."""
    with_: Annotated[dict[str, JsonValue], Field(alias="with")] = Field(default_factory=dict)
    """The settings of this kind of stage."""
    needs: tuple[str, ...] = ()
    """Stages, gates and actions that come first though nothing is taken from them."""
    rev: Annotated[int, Field(ge=0)] = 0
    """Raise it to have the stage run again under a new identity."""
    matrix: Annotated[dict[Name, JsonValue] | None, WithJsonSchema(_MATRIX)] = None
    """Lists of values by name: an instance of the stage for each combination, where `${matrix.NAME}` is its value."""
    for_each: Name | None = None
    """A fanned-out stage: an instance for each of its instances, whose outputs are `${each.outputs.NAME}`."""
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    """How many instances run at once; none is no limit."""
    if_: Annotated[str | None, Field(alias="if")] = None
    """A condition for the stage to run, such as `${params.seed} == 17` or `${stages.ID.outputs.report.METRIC} > 0`."""
