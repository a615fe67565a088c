"""The one generic flow: any pipeline file, run by its plan."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import Pause
from prefect.states import AwaitingRetry, Cancelled, Completed, Failed
from rich.console import Console

from flows.finish import close_run
from flows.human_gate import HumanGate
from flows.node_runner import NodeRunner
from flows.notify import notify
from flows.pipeline_run import PipelineRun, Surroundings
from flows.planning import Planning
from flows.run_page import RunPage
from flows.run_record import new_record
from flows.scheduler.overlap import skip_if_overlapping
from flows.scheduler.parameters import as_overrides
from flows.stop_on_cancel import is_cancelled, stop_on_cancel
from flows.this_flow_run import ThisFlowRun, this_flow_run
from pipelines.spec.damage import set_damaged_aside
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import ParamValue
from pipelines.spec.plan import Verify
from pipelines.spec.plan_json import plan_json
from pipelines.spec.planned import Plan
from pipelines.spec.run_values import with_run_values
from stages.store.conditional import open_store
from stages.store.runs import RunRecord, read_run, write_plan
from tasks.artifacts import Artifacts
from tasks.display import Display
from tasks.places import cache_dir
from tasks.scratch import sweep
from tasks.state_names import WAITING_APPROVAL, flow_run_name
from tasks.stopping import StopSignal, exit_code_of, stop_on_signals

LEAVE_SECONDS = 5.0


def _run_name() -> str:
    context = FlowRunContext.get()
    assert context is not None
    parameters = context.parameters or {}
    return flow_run_name(Path(parameters["pipeline"]), parameters.get("profile"))


@flow(name="temper", flow_run_name=_run_name, persist_result=False)
def run_pipeline(
    pipeline: str,
    profile: str | None = None,
    params: dict[str, ParamValue] | None = None,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    until: str | None = None,
    force: Sequence[str] = (),
    refresh: Sequence[str] = (),
    takeover: bool = False,
    verify: Verify = "list",
) -> State[str]:
    """Plan the pipeline in a file and run what is not committed yet.

    Args:
        pipeline: path of the YAML file.
        profile: overlay to use.
        params: values of the pipeline's parameters; those left out are as the file has them.
        overrides: `a.b=VALUE` over file and profile.
        only: stages to run, all if empty.
        until: last stage to run, with all that it needs.
        force: stages to run again although they are committed.
        refresh: stages to run again in this run only.
        takeover: take stages from other runs that work on them.
        verify: how committed results are checked, by listing their files or by the checksum of each.
    """
    spec = load_pipeline(Path(pipeline), profile, [*as_overrides(params or {}), *overrides])
    store = open_store(spec.store)
    here = this_flow_run()
    spec = with_run_values(spec, here.run_id)
    if here.is_deployed and (skipped := skip_if_overlapping(here.id)) is not None:
        return skipped
    try:
        # A run that its scheduler starts again has forced already.
        is_first = read_run(store, spec.name, here.run_id) is None
        planning = Planning(spec, store, here.run_id, only, until, force if is_first else (), refresh, verify)
        return _plan_and_run(planning, here, takeover=takeover)
    except Exception as error:
        record = new_record(spec, here.run_id, here.url)
        notify(spec.notify, record.model_copy(update={"outcome": "failed", "message": str(error)}))
        raise


def _plan_and_run(planning: Planning, here: ThisFlowRun, takeover: bool) -> State[str]:
    spec, store = planning.pipeline, planning.store
    plan = planning.first()
    write_plan(store, spec.name, here.run_id, plan_json(plan).encode())
    set_damaged_aside(plan, store)
    sweep(cache_dir() / "scratch")
    artifacts = Artifacts(here.id)
    try:
        return _run(plan, planning, here, RunPage(artifacts, spec, store), takeover=takeover)
    finally:
        artifacts.close()


def _run(plan: Plan, planning: Planning, here: ThisFlowRun, page: RunPage, takeover: bool) -> State[str]:
    stop, console = StopSignal(), Console()
    with stop_on_signals(stop), stop_on_cancel(stop, here.id), Display(console) as display:
        console.print(f"watch it at {here.url}", highlight=False, soft_wrap=True)
        page.show_plan(plan)
        run = PipelineRun(plan, planning, Surroundings(display, stop, here.url, takeover))
        run.go_on()
        nodes = NodeRunner(run, page, here)
        try:
            nodes.run_ready()
            if run.needs_repair and not stop.requested:
                run.repair()
                nodes.run_ready()
        except BaseException:
            # The stages that run would otherwise be waited for.
            stop.request("an error of the run")
            raise
        while here.is_deployed and (gate := run.gate_to_ask) is not None:
            HumanGate(run, gate, here).ask(page, console)
            nodes.run_ready()
    content = close_run(run, console)
    page.show_end(content)
    return _conclude(content.run, here)


def _conclude(record: RunRecord, here: ThisFlowRun) -> State[str]:
    """The state of the flow run; one that was stopped but not cancelled is handed back if anybody takes it."""
    if record.outcome == "stopped":
        _leave_soon(exit_code_of(record.message))
        if here.is_handed_back:
            _hand_back(here)
        return Cancelled(message=record.message)
    if record.outcome == "waiting_approval":
        return Completed(name=WAITING_APPROVAL, message=f"waits for approval: {record.message}")
    return Completed() if record.outcome == "succeeded" else Failed(message=record.message)


def _hand_back(here: ThisFlowRun) -> None:
    with get_client(sync_client=True) as client:
        if is_cancelled(client, here.id):
            return
        state = AwaitingRetry(message="Its machine was taken away. It goes on from what it saved.")
        raise Pause(state=client.set_flow_run_state(here.id, state).state)


def _leave_soon(code: int) -> None:
    """End the process where a task still sleeps before its next attempt, which nothing can wake."""
    timer = threading.Timer(LEAVE_SECONDS, os._exit, [code])
    timer.daemon = True
    timer.start()
