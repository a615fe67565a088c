"""`temper deploy`: a deployment of a pipeline at a Prefect server, which a worker runs when asked or by the clock."""

from argparse import ArgumentParser, Namespace

from rich.console import Console

from flows.commands.arguments import add_file, load
from flows.scheduler.connect import connect, find_server
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Pipeline, Schedule
from tasks.report.files import project_state_dir


def add_arguments(parser: ArgumentParser) -> None:
    """The file, and where its runs go."""
    add_file(parser)
    parser.add_argument("--name", help="of the deployment (the pipeline's name)")
    parser.add_argument("--work-pool", metavar="POOL", default="temper", help="where it runs (%(default)s)")
    parser.add_argument("--pause", action="store_true", help="have the schedule wait until it is switched on")


def run(arguments: Namespace) -> int:
    """Create the deployment or bring it up to date, and say what it is.

    Raises:
        TemperError: the file is no valid pipeline, also with what its schedule lays over it, or there is no server.
    """
    pipeline = load(arguments)
    if pipeline.schedule is not None:
        _check_scheduled(pipeline, pipeline.schedule, arguments.set)
    server = find_server(project_state_dir(pipeline.path))
    _say(f"server {server.address}, known from {server.known_from}")
    with connect(server.address) as client:
        from flows.scheduler.deployment import Request, deploy

        name = arguments.name or pipeline.name
        request = Request(pipeline, tuple(arguments.set), name, arguments.work_pool, arguments.pause)
        deployed = deploy(client, request)
    _say(
        f"deployment temper/{name} {'created' if deployed.is_new else 'updated'}, runs in work pool {request.work_pool}"
    )
    for pool in deployed.limits:
        _say(f"pool {pool}: one stage at a time; its limit is tag:{pool} on {server.page}/concurrency-limits")
    if pipeline.schedule is not None:
        fires = ", ".join(f"{fire:%a %Y-%m-%d %H:%M %Z}" for fire in deployed.fires)
        _say(f"schedule {pipeline.schedule.cron} {pipeline.schedule.timezone}: {'paused' if request.paused else fires}")
        _say(f"a run that finds the one before still going {OVERLAP[pipeline.schedule.overlap]}")
    _say(f"run it from {server.page}/deployments/deployment/{deployed.id}")
    return 0


OVERLAP = {"skip": "is skipped", "queue": "waits for it"}


def _check_scheduled(pipeline: Pipeline, schedule: Schedule, overrides: list[str]) -> None:
    from flows.scheduler.parameters import as_overrides

    profile = schedule.profile or pipeline.profile
    load_pipeline(pipeline.path, profile, [*as_overrides(schedule.params), *overrides])


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
