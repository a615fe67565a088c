"""Runs the nodes of a run as tasks of its flow, each as soon as what it needs is there."""

from queue import Empty, SimpleQueue
from typing import cast

from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.futures import PrefectFuture
from prefect.utilities.annotations import quote

from flows.pipeline_run import PipelineRun
from flows.run_page import RunPage
from flows.this_flow_run import ThisFlowRun
from pipelines.spec.nodes import StageNode
from pipelines.spec.planned import PlannedNode
from stages.store.runs import StageOutcome
from tasks.artifacts import Artifacts
from tasks.run_stage import is_retriable, run_stage
from tasks.settle_node import settle_node
from tasks.stage_work import StageDone, StageWork
from tasks.state_names import ENDS, task_run_name

POLL_SECONDS = 0.5


class NodeRunner:
    """One flow run's tasks; `run_ready` may be called again when more can run."""

    def __init__(self, run: PipelineRun, page: RunPage, here: ThisFlowRun) -> None:
        self._run = run
        self._page = page
        self._here = here
        self._finished: SimpleQueue[str] = SimpleQueue()
        self._futures: dict[str, PrefectFuture[State[StageDone]]] = {}
        self._running: set[str] = set()
        self._shown: dict[str, StageOutcome] = {}

    def run_ready(self) -> None:
        """Start every node as soon as what it needs is there, until nothing runs and nothing can."""
        stop = self._run.around.stop
        while True:
            ready = [] if stop.requested else self._run.ready()
            for planned in ready:
                self._start(planned)
            self._show()
            if not self._running and not ready:
                return
            if not self._running:
                continue
            try:
                node_id = self._finished.get(timeout=POLL_SECONDS)
            except Empty:
                if stop.requested and not stop.is_busy:
                    return
                continue
            self._running.remove(node_id)
            self._settle(node_id, self._futures[node_id])

    def _start(self, planned: PlannedNode) -> None:
        if isinstance(planned.node, StageNode):
            self._futures[planned.node.id] = self._submit(planned, planned.node)
            self._running.add(planned.node.id)
        else:
            self._run.decide(planned)

    def _submit(self, planned: PlannedNode, node: StageNode) -> PrefectFuture[State[StageDone]]:
        task = run_stage.with_options(
            name=node.id,
            task_run_name=task_run_name(node.id, planned.key),
            tags=[node.resources.pool] if node.resources.pool else [],
            retries=node.retry.max,
            retry_delay_seconds=list(node.retry.delay) or 0,
            retry_jitter_factor=node.retry.jitter,
            retry_condition_fn=is_retriable,
        )
        self._run.started(node.id)
        needed = [self._futures[need] for need in node.needs if need in self._futures]
        # Prefect takes the quote off again; it keeps it from walking through the work and copying it.
        work = cast("StageWork", quote(self._run.work(planned)))
        artifacts = cast("Artifacts", quote(self._page.artifacts))
        future = task.submit(work, artifacts, wait_for=needed, return_state=False)
        future.add_done_callback(lambda _future: self._finished.put(node.id))
        return future

    def _settle(self, node_id: str, future: PrefectFuture[State[StageDone]]) -> None:
        result: object = future.result(raise_on_failure=False)
        if isinstance(result, StageDone):
            self._run.done(node_id, result)
            if result.state != "Reused":
                self._announce(node_id, result)
        else:
            assert isinstance(result, BaseException)
            self._run.failed(node_id, result)
        self._shown[node_id] = self._run.outcome(node_id)

    def _show(self) -> None:
        """Record what became of the nodes; those that no stage's process ran get a task run each now."""
        record = self._run.record
        for node in record.stages:
            if node.outcome in ENDS and self._shown.get(node.id) != node.outcome:
                self._shown[node.id] = node.outcome
                settle_node.with_options(name=node.id, task_run_name=task_run_name(node.id, node.key))(
                    node, return_state=True
                )
        self._run.save()
        self._page.show_stages(record)

    def _announce(self, node_id: str, done: StageDone) -> None:
        manifest, run = done.manifest, self._here
        emit_event(
            event="temper.stage.committed",
            resource={"prefect.resource.id": f"temper.stage.{manifest.key}", "prefect.resource.name": node_id},
            related=[{"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.role": "flow-run"}],
            payload={
                "kind": manifest.stage,
                "key": manifest.key,
                "attempt": manifest.attempt,
                "run": self._here.run_id,
            },
        )
