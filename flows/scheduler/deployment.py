"""The deployment of a pipeline: what a worker may be asked to run, when it runs by itself, and the form for it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.server.schemas.schedules import CronSchedule as Fires
from prefect.utilities.callables import parameter_schema
from pydantic import JsonValue, ValidationError

from flows.pipeline import run_pipeline
from pipelines.spec.nodes import ParamValue, Pipeline, Schedule, StageNode
from stages.errors import UserError

ENTRYPOINT = "flows.pipeline.run_pipeline"
NUM_FIRES = 3
COLLISION = {"skip": ConcurrencyLimitStrategy.CANCEL_NEW, "queue": ConcurrencyLimitStrategy.ENQUEUE}
JSON_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True)
class Request:
    """What `temper deploy` is asked for."""

    pipeline: Pipeline
    overrides: tuple[str, ...]
    name: str
    work_pool: str
    paused: bool


@dataclass(frozen=True)
class Deployed:
    """What became of it; `limits` are the pools that got a limit of one stage at a time, having had none."""

    id: UUID
    is_new: bool
    fires: tuple[datetime, ...]
    limits: tuple[str, ...]


def deploy(client: SyncPrefectClient, request: Request) -> Deployed:
    """Create the deployment, or bring the one of that name up to date; other schedules of it go.

    Raises:
        UserError: the schedule cannot be understood, or there is no such work pool.
    """
    pipeline, schedule = request.pipeline, request.pipeline.schedule
    fires = _next_fires(schedule) if schedule is not None else ()
    try:
        client.read_work_pool(request.work_pool)
    except ObjectNotFound:
        raise UserError(f"no work pool `{request.work_pool}`: `temper up` makes the pool `temper`") from None
    flow = client.create_flow(run_pipeline)
    is_new = not _exists(client, f"{run_pipeline.name}/{request.name}")
    deployment = client.create_deployment(
        flow_id=flow,
        name=request.name,
        description=pipeline.description or None,
        entrypoint=ENTRYPOINT,
        parameters=_parameters(request),
        parameter_openapi_schema=form(pipeline.params),
        enforce_parameter_schema=True,
        schedules=[] if schedule is None else [_schedule(schedule)],
        concurrency_limit=None if schedule is None else 1,
        concurrency_options=None
        if schedule is None
        else ConcurrencyOptions(collision_strategy=COLLISION[schedule.overlap]),
        work_pool_name=request.work_pool,
        job_variables={"working_dir": str(pipeline.path.absolute().parent)},
        paused=request.paused,
        tags=["temper"],
    )
    return Deployed(deployment, is_new, fires, ensure_limits(client, pipeline))


def form(params: Mapping[str, ParamValue]) -> dict[str, JsonValue]:
    """The schema of the flow's parameters in which `params` has a field for each parameter of the pipeline."""
    schema: dict[str, JsonValue] = parameter_schema(run_pipeline).model_dump(mode="json", exclude_none=True)
    properties = schema["properties"]
    assert isinstance(properties, dict)
    properties["params"] = {
        "type": "object",
        "title": "params",
        "description": "Parameters of the pipeline; those left out have the values of its file.",
        "position": 2,
        "additionalProperties": False,
        "properties": {
            name: {"type": JSON_TYPES[type(value)], "title": name, "description": f"{value} in the file", "position": n}
            for n, (name, value) in enumerate(params.items())
        },
    }
    return schema


def ensure_limits(client: SyncPrefectClient, pipeline: Pipeline) -> tuple[str, ...]:
    """Let the stages of each pool that the pipeline names run one at a time, where no limit is set yet.

    Returns:
        The pools that got a limit.
    """
    pools = {node.resources.pool for node in pipeline.nodes.values() if isinstance(node, StageNode)}
    made = []
    for pool in sorted(pool for pool in pools if pool is not None):
        try:
            client.read_global_concurrency_limit_by_name(f"tag:{pool}")
        except ObjectNotFound:
            client.upsert_global_concurrency_limit_by_name(f"tag:{pool}", 1)
            made.append(pool)
    return tuple(made)


def _parameters(request: Request) -> dict[str, JsonValue]:
    parameters: dict[str, JsonValue] = {"pipeline": str(request.pipeline.path.absolute())}
    if request.pipeline.profile is not None:
        parameters["profile"] = request.pipeline.profile
    if request.overrides:
        parameters["overrides"] = list(request.overrides)
    return parameters


def _exists(client: SyncPrefectClient, name: str) -> bool:
    try:
        client.read_deployment_by_name(name)
    except ObjectNotFound:
        return False
    return True


def _schedule(schedule: Schedule) -> DeploymentScheduleCreate:
    parameters: dict[str, JsonValue] = {"params": dict(schedule.params)}
    if schedule.profile is not None:
        parameters["profile"] = schedule.profile
    return DeploymentScheduleCreate(
        schedule=CronSchedule(cron=schedule.cron, timezone=schedule.timezone), parameters=parameters, slug="schedule"
    )


def _next_fires(schedule: Schedule) -> tuple[datetime, ...]:
    try:
        fires = Fires(cron=schedule.cron, timezone=schedule.timezone)
    except ValidationError as error:
        problems = "; ".join(problem["msg"] for problem in error.errors())
        raise UserError(f"schedule: cron `{schedule.cron}`, timezone `{schedule.timezone}`: {problems}") from error
    return tuple(asyncio.run(fires.get_dates(n=NUM_FIRES)))
