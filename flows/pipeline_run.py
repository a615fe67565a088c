"""One run of a plan: which node may go next, what became of each, and the record of it all. Knows no scheduler."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from flows.run_record import describe, new_record
from pipelines.actions.gate_eval import evaluate_gate
from pipelines.actions.reports import Report, read_report
from pipelines.spec.nodes import GateNode, StageNode
from pipelines.spec.planned import Plan, PlannedNode
from pipelines.spec.references import OutputReference
from pipelines.spec.stage_inputs import stage_inputs
from stages.errors import TemperError
from stages.store.conditional import ConditionalStore
from stages.store.manifest import Manifest
from stages.store.runs import RunRecord, StageOutcome, write_run
from tasks.display import Display
from tasks.places import cache_dir, state_dir
from tasks.stage_work import StageDone, StageFailedError, StageWork
from tasks.stopping import StopSignal

SAVE_SECONDS = 1.0
SATISFIED: set[StageOutcome] = {"reused", "done", "resumed", "passed"}
"""Outcomes after which the nodes that need this one may run."""
OUTCOMES: dict[str, StageOutcome] = {"Reused": "reused", "Resumed": "resumed", "Committed": "done"}


@dataclass(frozen=True)
class Surroundings:
    """Where a run shows itself, and what ends it early."""

    display: Display
    stop: StopSignal
    run_url: str | None


class PipelineRun:
    """The state of a run, and its record in the archive of the store."""

    def __init__(self, plan: Plan, store: ConditionalStore, run_id: str, around: Surroundings) -> None:
        self.plan = plan
        self.store = store
        self.around = around
        self._corrupt: set[str] = set()
        self._manifests: dict[str, Manifest] = {}
        self._halted_by: str | None = None
        self._record = new_record(plan.pipeline, run_id, around.run_url)
        self._stages = {node_id: describe(planned) for node_id, planned in plan.nodes.items()}
        self._saved_at = -math.inf
        self._is_saved = False
        self._take_committed()

    @property
    def record(self) -> RunRecord:
        """What happened so far."""
        return self._record.model_copy(update={"stages": tuple(self._stages.values())})

    @property
    def needs_repair(self) -> bool:
        """Whether a stage failed because a committed input of it is corrupt; its producer is set aside by then."""
        return bool(self._corrupt)

    def ready(self) -> list[PlannedNode]:
        """The nodes that may run now. Those that cannot run any more are recorded as skipped."""
        for node_id in self._waiting():
            blocked = self._blocked_by(self.plan.nodes[node_id])
            if blocked is not None:
                self._settle(node_id, "skipped", message=blocked)
        return [self.plan.nodes[node_id] for node_id in self._waiting() if self._is_free(self.plan.nodes[node_id])]

    def work(self, planned: PlannedNode) -> StageWork:
        """What the task of a ready stage needs."""
        assert isinstance(planned.node, StageNode)
        assert planned.key is not None
        assert planned.payload is not None
        return StageWork(
            node=planned.node,
            key=planned.key,
            payload=planned.payload,
            inputs=stage_inputs(planned, self.plan, self._manifests),
            sources=tuple(planned.sources.values()),
            store=self.store,
            run_url=self.around.run_url,
            cache=cache_dir(),
            locks=state_dir() / "locks",
            display=self.around.display,
            stop=self.around.stop,
            run_id=self._record.run_id,
        )

    def started(self, node_id: str) -> None:
        """A stage was handed to the scheduler."""
        self._settle(node_id, "running")

    def done(self, node_id: str, done: StageDone) -> None:
        """A stage has a result."""
        self._manifests[done.manifest.key] = done.manifest
        self._settle(
            node_id,
            OUTCOMES[done.state],
            seconds=done.seconds,
            steps=(done.first_step, done.last_step),
            numbers=done.manifest.numbers,
        )

    def failed(self, node_id: str, error: BaseException) -> None:
        """A stage has none, after all its attempts."""
        if isinstance(error, StageFailedError) and error.cause == "corrupt":
            self._corrupt.add(node_id)
        if isinstance(error, StageFailedError) and error.cause == "stopped":
            self._settle(node_id, "stopped", message=error.message)
        else:
            self._settle(node_id, "failed", message=str(error) or type(error).__name__)

    def decide_gate(self, planned: PlannedNode) -> None:
        """Evaluate a gate on the committed reports."""
        gate = planned.node
        assert isinstance(gate, GateNode)
        try:
            outcome = evaluate_gate(gate, self._reports(gate))
        except TemperError as error:
            self._close_gate(gate, str(error), ())
            return
        if outcome.passed:
            self._settle(gate.id, "passed", lines=outcome.lines)
            self.around.display.end(gate.id, "passed")
        else:
            self._close_gate(gate, "a requirement is not met", outcome.lines)

    def repair(self, plan: Plan) -> None:
        """Go on with a new plan after a corrupt result was set aside: what it lost, and what waited for it, runs."""
        self.plan = plan
        for node_id, planned in plan.nodes.items():
            stage = self._stages[node_id]
            lost = stage.outcome in SATISFIED and planned.decision in ("run", "resume")
            held_up = stage.outcome == "skipped" and planned.decision != "skip"
            if lost or held_up or node_id in self._corrupt:
                self._stages[node_id] = describe(planned)
        self._corrupt.clear()
        self._take_committed()

    def save(self) -> None:
        """Write the record if it changed; a bucket takes one write of an object each second."""
        if not self._is_saved and time.monotonic() - self._saved_at > SAVE_SECONDS:
            write_run(self.store, self.record)
            self._is_saved, self._saved_at = True, time.monotonic()

    def finish(self) -> RunRecord:
        """Close the record; returns it."""
        for node_id in self._waiting():
            self._settle(node_id, "stopped" if self.around.stop.requested else "skipped")
        outcome, message = self._verdict()
        update = {"finished": datetime.now(UTC).isoformat(), "outcome": outcome, "message": message}
        self._record = self._record.model_copy(update=update)
        write_run(self.store, self.record)
        return self.record

    def _verdict(self) -> tuple[Literal["succeeded", "failed", "stopped"], str]:
        if self.around.stop.requested:
            return "stopped", self.around.stop.reason
        if self._halted_by is not None:
            return "failed", f"gate {self._halted_by} did not pass"
        failed = [stage.id for stage in self._stages.values() if stage.outcome == "failed"]
        failed = [node_id for node_id in failed if isinstance(self.plan.nodes[node_id].node, StageNode)]
        return ("failed", ", ".join(failed)) if failed else ("succeeded", "")

    def _take_committed(self) -> None:
        for planned in self.plan.nodes.values():
            if planned.manifest is not None:
                self._manifests[planned.manifest.key] = planned.manifest

    def _waiting(self) -> Iterator[str]:
        return iter([node_id for node_id, stage in self._stages.items() if stage.outcome == "waiting"])

    def _before(self, planned: PlannedNode) -> list[str]:
        """The nodes that must come first; one that the user left out does not count."""
        needs = [*planned.node.needs, *([planned.same_as] if planned.same_as else [])]
        return [node_id for node_id in needs if self.plan.nodes[node_id].decision != "skip"]

    def _is_free(self, planned: PlannedNode) -> bool:
        return all(self._stages[node_id].outcome in SATISFIED for node_id in self._before(planned))

    def _blocked_by(self, planned: PlannedNode) -> str | None:
        if self._halted_by is not None:
            return f"gate {self._halted_by} did not pass"
        for node_id in self._before(planned):
            if self._stages[node_id].outcome in ("failed", "skipped", "stopped"):
                return f"{node_id}: {self._stages[node_id].outcome}"
        return None

    def _close_gate(self, gate: GateNode, message: str, lines: tuple[str, ...]) -> None:
        self._settle(gate.id, "failed", message=message, lines=lines)
        self.around.display.end(gate.id, "\n  ".join((f"not passed: {message}", *lines)))
        if gate.on_fail == "stop":
            self._halted_by = gate.id

    def _reports(self, gate: GateNode) -> dict[OutputReference, Report]:
        """Every report that the gate looks at, by its reference."""
        reports: dict[OutputReference, Report] = {}
        for output in gate.reports:
            key = self.plan.nodes[output.stage].key
            assert key is not None, "only stages have outputs"
            reports[output.reference] = read_report(
                self.store, self._manifests[key], output.output, cache_dir() / "reports"
            )
        return reports

    def _settle(
        self,
        node_id: str,
        outcome: StageOutcome,
        message: str = "",
        lines: tuple[str, ...] = (),
        seconds: float = 0.0,
        steps: tuple[int | None, int | None] = (None, None),
        numbers: dict[str, float] | None = None,
    ) -> None:
        update = {
            "outcome": outcome,
            "message": message,
            "lines": lines,
            "seconds": seconds,
            "first_step": steps[0],
            "last_step": steps[1],
            "numbers": numbers or {},
        }
        self._stages[node_id] = self._stages[node_id].model_copy(update=update)
        self._is_saved = False


def reuse_all(run: PipelineRun) -> None:
    """Bring a plan to its end in which every stage is committed: only the gates are left to decide."""
    while ready := run.ready():
        for planned in ready:
            if isinstance(planned.node, GateNode):
                run.decide_gate(planned)
            else:
                assert planned.manifest is not None, "the plan has no work"
                run.done(planned.node.id, StageDone("Reused", planned.manifest, 0.0))
