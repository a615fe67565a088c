"""The sections of a pipeline file, its stages and gates apart."""

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, JsonValue, field_validator

from pipelines.spec.cron import check_cron
from pipelines.spec.nodes import NotifyEvent
from pipelines.spec.stage_sections import Name
from stages.contract import Strict
from stages.trackers import Trackers

PIPELINE_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]*$"
STORE_SCHEMES = ("file", "gs")
ParamType = Literal["int", "float", "bool", "str", "model_source"]

_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+")


class ParamSection(Strict):
    """A value that `${params.NAME}` stands for, and that `--set params.NAME=VALUE` replaces."""

    type: ParamType
    """What it may hold; a `model_source` is a URI of a base model."""
    default: JsonValue = None
    """The value without `--set`; a parameter without one must be set."""
    description: str = ""
    """What it is for."""


def check_timezone(name: str) -> str:
    """The name of a time zone; raises `ValueError` if there is none."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("expected a time zone such as UTC or Europe/Berlin") from error
    return name


class ScheduleSection(Strict):
    """When a deployed pipeline runs by itself."""

    cron: Annotated[str, AfterValidator(check_cron)]
    """Minute, hour, day of the month, month, day of the week, such as `0 2 * * SUN`."""
    timezone: Annotated[str, AfterValidator(check_timezone)] = "UTC"
    """The time zone that the times are in."""
    profile: str | None = None
    """The profile that is laid over the file."""
    overlap: Literal["skip", "queue"] = "skip"
    """What a run does that finds the one before still going: nothing, or wait for its end."""
    params: dict[Name, JsonValue] = Field(default_factory=dict)
    """Values of parameters."""


class NotifySection(Strict):
    """Whom to tell of what."""

    on: Annotated[tuple[NotifyEvent, ...], Field(min_length=1)]
    """What is told: `failed`, `gate_waiting`, `succeeded`."""
    to: str
    """An Apprise URL, or a `secret://NAME` that holds one."""

    @field_validator("to")
    @classmethod
    def _check_to(cls, to: str) -> str:
        if not _URL.fullmatch(to):
            raise ValueError("expected a URL, or secret:// and the name of one")
        return to


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

    notify: JsonValue = None
    """Whom to tell of what, or a part of it."""
    trackers: JsonValue = None
    """What shows metrics beside the store, or a part of it."""
    stages: dict[Name, JsonValue] = Field(default_factory=dict)
    """Parts of stages and gates."""


class PipelineSection(HeadSection):
    """A pipeline file."""

    version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=PIPELINE_NAME_PATTERN, max_length=64)]
    """Name of the pipeline; its runs are kept under it."""
    extends: Annotated[str, Field(min_length=1)] | None = None
    """Another pipeline file, which this one is laid over; its path is relative to this file."""
    stages: Annotated[dict[Name, JsonValue], Field(min_length=1)]
    """Stages, gates and actions by id."""
    profiles: dict[Name, JsonValue] = Field(default_factory=dict)
    """Overlays by name, chosen with `--profile`."""
    notify: NotifySection | None = None
    """Whom to tell of what."""
    trackers: Trackers = Trackers()
    """What shows metrics beside the store; no part of any identity."""
    schedule: ScheduleSection | None = None
    """When a deployed pipeline runs by itself."""
