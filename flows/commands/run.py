"""`temper run`: with a scheduler where there is work, without one where all is committed."""

import os
from argparse import ArgumentParser, Namespace

from rich.console import Console

from flows.commands.arguments import add_file, add_repeatable, add_selection, load
from flows.finish import close_run
from flows.pipeline_run import PipelineRun, Surroundings, reuse_all
from flows.server import prefect_server
from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_json import plan_json
from pipelines.spec.plan_text import plan_text
from pipelines.spec.planned import Plan
from pipelines.spec.selection import select
from stages.store.conditional import ConditionalStore, open_store
from stages.store.runs import new_run_id, write_plan
from tasks.display import Display
from tasks.report.files import project_state_dir
from tasks.stopping import StopSignal, exit_code_of


def add_arguments(parser: ArgumentParser) -> None:
    """The file, which stages, and which of them again."""
    add_file(parser)
    add_selection(parser)
    add_repeatable(parser, "--force", "STAGE", "run a committed stage again; later plans use its new result")


def run(arguments: Namespace) -> int:
    """Run the pipeline; returns the exit code.

    Raises:
        TemperError: it cannot be planned, or the scheduler cannot be started; another error of the run is a bug.
    """
    pipeline = load(arguments)
    store = open_store(pipeline.store)
    # Bad usage is told before a server is started for it.
    select(pipeline, arguments.only, arguments.until, arguments.force)
    if not arguments.force and not os.environ.get("PREFECT_API_URL"):
        plan = make_plan(pipeline, store, (), arguments.only, arguments.until)
        if not plan.has_work:
            return _reuse(plan, store)
        _say(plan_text(plan))
    return _schedule(arguments, pipeline)


def _reuse(plan: Plan, store: ConditionalStore) -> int:
    console, run_id = Console(), new_run_id()
    write_plan(store, plan.pipeline.name, run_id, plan_json(plan).encode())
    with Display(console) as display:
        pipeline_run = PipelineRun(plan, store, run_id, Surroundings(display, StopSignal(), None))
        reuse_all(pipeline_run)
    return 0 if close_run(pipeline_run, console).run.outcome == "succeeded" else 1


def _schedule(arguments: Namespace, pipeline: Pipeline) -> int:
    if not os.environ.get("PREFECT_API_URL"):
        _say("starting a Prefect server …")
    with prefect_server(project_state_dir(pipeline.path) / "prefect"):
        from flows.pipeline import run_pipeline

        state = run_pipeline.with_options(flow_run_name=pipeline.name)(
            pipeline=str(arguments.file.absolute()),
            profile=arguments.profile,
            overrides=arguments.set,
            only=arguments.only,
            until=arguments.until,
            force=arguments.force,
            return_state=True,
        )
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
