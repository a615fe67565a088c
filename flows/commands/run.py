"""`temper run`: with a scheduler where there is work, without one where all is committed."""

import os
from argparse import ArgumentParser, Namespace

from rich.console import Console

from flows.commands.arguments import add_file, add_repeatable, add_selection, add_verify, load
from flows.finish import close_run
from flows.pipeline_run import PipelineRun, Surroundings, reuse_all
from flows.planning import Planning
from flows.reused_run import ShownRun, UnshownRunError, shown_run
from flows.server import prefect_server
from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan_json import plan_json
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan
from pipelines.spec.run_values import with_run_values
from pipelines.spec.selection import select
from stages.errors import TemperError
from stages.store.conditional import open_store
from stages.store.runs import new_run_id, write_plan
from tasks.display import Display
from tasks.report.files import project_state_dir
from tasks.state_names import WAITING_APPROVAL, flow_run_name
from tasks.stopping import StopSignal, exit_code_of

WAITS_FOR_APPROVAL = 3


class ServerLostError(TemperError):
    """The server went away while the run went on."""


def add_arguments(parser: ArgumentParser) -> None:
    """The file, which stages, and which of them again."""
    add_file(parser)
    add_selection(parser)
    add_repeatable(parser, "--force", "STAGE", "run a committed stage again; later plans use its new result")
    add_repeatable(parser, "--refresh", "STAGE", "run a committed stage again, for this run only")
    parser.add_argument("--takeover", action="store_true", help="take stages from other runs that work on them")
    add_verify(parser)


def run(arguments: Namespace) -> int:
    """Run the pipeline; returns the exit code.

    Raises:
        TemperError: it cannot be planned, or the scheduler cannot be started; another error of the run is a bug.
    """
    pipeline = load(arguments)
    # Bad usage is told before a server is started for it.
    select(pipeline, arguments.only, arguments.until, arguments.force, arguments.refresh)
    if not arguments.force:
        planning = _planning(arguments, pipeline)
        plan = planning.first()
        if not plan.has_work and (code := _reuse_shown(plan, planning)) is not None:
            return code
        if not os.environ.get("PREFECT_API_URL"):
            _say(plan_text(plan))
    return _schedule(arguments, pipeline)


def _planning(arguments: Namespace, pipeline: Pipeline) -> Planning:
    run_id = new_run_id()
    return Planning(
        with_run_values(pipeline, run_id),
        open_store(pipeline.store),
        run_id,
        arguments.only,
        arguments.until,
        refresh=arguments.refresh,
        verify=arguments.verify,
    )


def _reuse_shown(plan: Plan, planning: Planning) -> int | None:
    """Reuse everything, and have the server show it that the user named; None if it wants Prefect's own client."""
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        return _reuse(plan, planning, None)
    with shown_run(address, flow_run_name(plan.pipeline.path, plan.pipeline.profile)) as shown:
        return None if shown is None else _reuse(plan, planning, shown)


def _reuse(plan: Plan, planning: Planning, shown: ShownRun | None) -> int:
    console = Console()
    write_plan(planning.store, plan.pipeline.name, planning.run_id, plan_json(plan).encode())
    if shown is not None:
        _say(f"watch it at {shown.url}")
    with Display(console) as display:
        around = Surroundings(display, StopSignal(), None if shown is None else shown.url)
        pipeline_run = PipelineRun(plan, planning, around)
        reuse_all(pipeline_run)
    record = close_run(pipeline_run, console).run
    if shown is not None:
        try:
            shown.end(record)
        except UnshownRunError as error:
            # What became of the run is in the store.
            _say(str(error))
    match record.outcome:
        case "succeeded":
            return 0
        case "waiting_approval":
            return WAITS_FOR_APPROVAL
        case _:
            return 1


def _schedule(arguments: Namespace, pipeline: Pipeline) -> int:
    if not os.environ.get("PREFECT_API_URL"):
        _say("starting a Prefect server …")
    with prefect_server(project_state_dir(pipeline.path) / "prefect"):
        from httpx import HTTPError

        from flows.pipeline import run_pipeline

        try:
            state = run_pipeline(
                pipeline=str(arguments.file.absolute()),
                profile=arguments.profile,
                overrides=arguments.set,
                only=arguments.only,
                until=arguments.until,
                force=arguments.force,
                refresh=arguments.refresh,
                takeover=arguments.takeover,
                verify=arguments.verify,
                return_state=True,
            )
        except HTTPError as error:
            raise ServerLostError(
                f"the Prefect server does not answer any more ({error}); what became of the run is in the store: "
                f"temper status {arguments.file}"
            ) from error
        if state.name == WAITING_APPROVAL:
            return WAITS_FOR_APPROVAL
        if state.is_completed():
            return 0
        if state.is_cancelled():
            assert state.message is not None
            return exit_code_of(state.message)
        error = state.result(raise_on_failure=False)
    if isinstance(error, BaseException):
        raise error
    # A run that failed by its own verdict has told so, and carries no error.
    return 1


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
