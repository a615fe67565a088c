"""The one generic flow: any pipeline file, run by its plan."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import cast

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelled, Completed, Failed
from prefect.utilities.annotations import quote
from rich.console import Console

from flows.finish import close_run
from flows.pipeline_run import PipelineRun, Surroundings
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import GateNode, StageNode
from pipelines.spec.plan import PlannedNode, make_plan, set_damaged_aside
from stages.store.conditional import open_store
from stages.store.runs import new_run_id, write_plan
from tasks.display import Display
from tasks.places import cache_dir
from tasks.run_stage import is_retriable, run_stage
from tasks.scratch import sweep
from tasks.stage_work import StageDone, StageWork
from tasks.stopping import StopSignal, exit_code_of, stop_on_signals

POLL_SECONDS = 0.5
LEAVE_SECONDS = 5.0


@flow(name="temper", persist_result=False)
def run_pipeline(
    pipeline: str,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    until: str | None = None,
    force: Sequence[str] = (),
) -> State[str]:
    """Plan the pipeline in a file and run what is not committed yet.

    Args:
        pipeline: path of the YAML file.
        profile: overlay to use.
        overrides: `a.b=VALUE` over file and profile.
        only: stages to run, all if empty.
        until: last stage to run, with all that it needs.
        force: stages to run again although they are committed.
    """
    spec = load_pipeline(Path(pipeline), profile, overrides)
    store = open_store(spec.store)
    plan = make_plan(spec, store, force, only, until)
    run_id = new_run_id()
    write_plan(store, spec.name, run_id, plan.to_json().encode())
    set_damaged_aside(plan, store)
    sweep(cache_dir() / "scratch")
    stop = StopSignal()
    console = Console()
    with stop_on_signals(stop), Display(console) as display:
        url = _run_url()
        console.print(f"watch it at {url}", highlight=False, soft_wrap=True)
        run = PipelineRun(plan, store, run_id, Surroundings(display, stop, url))
        try:
            _run_ready(run)
            if run.needs_repair and not stop.requested:
                run.repair(make_plan(spec, store, (), only, until))
                _run_ready(run)
        except BaseException:
            # The stages that run would otherwise be waited for.
            stop.request("an error of the run")
            raise
    record = close_run(run, console)
    if record.outcome == "stopped":
        _leave_soon(exit_code_of(record.message))
        return Cancelled(message=record.message)
    return Completed() if record.outcome == "succeeded" else Failed(message=record.message)


def _run_ready(run: PipelineRun) -> None:
    """Start every node as soon as what it needs is there, until nothing runs and nothing can."""
    finished: SimpleQueue[str] = SimpleQueue()
    futures: dict[str, PrefectFuture[State[StageDone]]] = {}
    running: set[str] = set()
    while True:
        ready = [] if run.around.stop.requested else run.ready()
        for planned in ready:
            if isinstance(planned.node, GateNode):
                run.decide_gate(planned)
            else:
                futures[planned.node.id] = _submit(run, planned, planned.node, futures, finished)
                running.add(planned.node.id)
        run.save()
        if not running and not ready:
            return
        if not running:
            continue
        try:
            node_id = finished.get(timeout=POLL_SECONDS)
        except Empty:
            if run.around.stop.requested and not run.around.stop.is_busy:
                return
            continue
        running.remove(node_id)
        _settle(run, node_id, futures[node_id])


def _submit(
    run: PipelineRun,
    planned: PlannedNode,
    node: StageNode,
    futures: dict[str, PrefectFuture[State[StageDone]]],
    finished: SimpleQueue[str],
) -> PrefectFuture[State[StageDone]]:
    task = run_stage.with_options(
        name=node.id,
        task_run_name=f"{node.id} · {(planned.key or '')[:8]}",
        tags=[node.resources.accelerator],
        retries=node.retry.max,
        retry_delay_seconds=list(node.retry.delay) or 0,
        retry_jitter_factor=node.retry.jitter,
        retry_condition_fn=is_retriable,
    )
    run.started(node.id)
    needed = [futures[need] for need in node.needs if need in futures]
    # Prefect takes the quote off again; it keeps it from walking through the work and copying it.
    work = cast("StageWork", quote(run.work(planned)))
    future = task.submit(work, wait_for=needed, return_state=False)
    future.add_done_callback(lambda _future: finished.put(node.id))
    return future


def _settle(run: PipelineRun, node_id: str, future: PrefectFuture[State[StageDone]]) -> None:
    result: object = future.result(raise_on_failure=False)
    if isinstance(result, StageDone):
        run.done(node_id, result)
    else:
        assert isinstance(result, BaseException)
        run.failed(node_id, result)


def _run_url() -> str:
    """The page of this run in the scheduler's own web interface."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return f"{PREFECT_API_URL.value().removesuffix('/api')}/runs/flow-run/{context.flow_run.id}"


def _leave_soon(code: int) -> None:
    """End the process where a task still sleeps before its next attempt, which nothing can wake."""
    timer = threading.Timer(LEAVE_SECONDS, os._exit, [code])
    timer.daemon = True
    timer.start()
