"""One run of a plan: which node may go next, what became of each, and the record of it all. Knows no scheduler."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from flows.decisions import Decisions, Verdict
from flows.planning import Planning
from flows.run_record import describe, new_record
from pipelines.spec.damage import set_damaged_aside
from pipelines.spec.nodes import ActionNode, SelectBest, StageNode
from pipelines.spec.planned import Plan, PlannedNode
from pipelines.spec.stage_inputs import stage_inputs
from stages.store.manifest import Manifest
from stages.store.moments import now
from stages.store.runs import RunOutcome, RunRecord, RunStage, StageOutcome, read_run, write_run
from stages.trackers import Tracking
from tasks.display import Display
from tasks.places import cache_dir, locks_dir
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
    takeover: bool = False
    """Take stages from other runs that work on them."""


class PipelineRun:
    """The state of a run, and its record in the archive of the store."""

    def __init__(self, plan: Plan, planning: Planning, around: Surroundings) -> None:
        """`plan` is the first one of `planning`."""
        self.plan = plan
        self.store = planning.store
        self.around = around
        self._planning = planning
        self._corrupt: set[str] = set()
        self._manifests: dict[str, Manifest] = {}
        self._earlier: dict[str, RunStage] = {}
        self._halted_by: str | None = None
        self._faults: set[str] = set()
        self._record = new_record(plan.pipeline, planning.run_id, around.run_url)
        self._stages = {node_id: describe(planned) for node_id, planned in plan.nodes.items()}
        self._saved_at = -math.inf
        self._is_saved = False
        self._take_committed()

    @property
    def record(self) -> RunRecord:
        """What happened so far."""
        return self._record.model_copy(update={"stages": tuple(self._stages.values())})

    def outcome(self, node_id: str) -> StageOutcome:
        """What became of one node so far."""
        return self._stages[node_id].outcome

    @property
    def needs_repair(self) -> bool:
        """Whether a stage failed because a committed input of it is corrupt; its producer is set aside by then."""
        return bool(self._corrupt)

    @property
    def awaiting(self) -> list[PlannedNode]:
        """The gates that a person has to decide."""
        return [self.plan.nodes[node_id] for node_id in self._with_outcome("waiting_approval")]

    @property
    def gate_to_ask(self) -> PlannedNode | None:
        """A gate that a person has to decide, where nothing but that keeps the run from its success."""
        awaits = not self.around.stop.requested and self._verdict()[0] == "waiting_approval"
        return self.awaiting[0] if awaits else None

    def go_on(self) -> None:
        """Take up the record of this run, where its scheduler has started it before."""
        before = read_run(self.store, self._record.pipeline, self._record.run_id)
        if before is not None:
            kept = {"started": before.started, "deviations": before.deviations}
            self._record = self._record.model_copy(update=kept)
            self._earlier = {stage.id: stage for stage in before.stages}

    def ready(self) -> list[PlannedNode]:
        """The nodes that may go now. Those that cannot or need not go any more are recorded as skipped."""
        self._skip_blocked()
        slots = self._free_slots()
        ready: list[PlannedNode] = []
        for node_id in self._with_outcome("waiting"):
            planned = self.plan.nodes[node_id]
            group = planned.node.group if isinstance(planned.node, StageNode) else ""
            free = slots.get(group, math.inf)
            # A condition reads reports, so it is looked at only once the node could start.
            if free > 0 and self._is_free(planned) and self._applies(planned):
                slots[group] = free - 1
                ready.append(planned)
        self._skip_blocked()
        return ready

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
            locks=locks_dir(),
            display=self.around.display,
            stop=self.around.stop,
            run_id=self._record.run_id,
            tracking=Tracking(pipeline=self.plan.pipeline.name, trackers=self.plan.pipeline.trackers),
            takeover=self.around.takeover,
        )

    def started(self, node_id: str) -> None:
        """A stage was handed to the scheduler."""
        self._settle(node_id, "running")

    def done(self, node_id: str, done: StageDone) -> None:
        """A stage has a result."""
        self._manifests[done.manifest.key] = done.manifest
        earlier = self._earlier.get(node_id)
        if done.state == "Reused" and earlier is not None and earlier.key == done.manifest.key and earlier.seconds:
            # This run has made it itself, before it was started again.
            self._stages[node_id] = earlier
            return
        decided = self.plan.nodes[node_id].decision
        if done.state == "Reused" and decided in ("run", "resume"):
            self._deviate(f"{node_id}: planned to {decided}, but attempt {done.manifest.attempt} had committed it")
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

    def decide(self, planned: PlannedNode) -> Verdict:
        """Decide a gate, or do an action, on what is committed."""
        verdict = self._decisions().decide(planned)
        self._take_verdict(planned.node.id, verdict)
        if verdict.chosen is not None and planned.chosen is None:
            self._plan_rest()
        return verdict

    def ask_again(self) -> None:
        """Look again at the gates that wait for a person."""
        for node_id in list(self._with_outcome("waiting_approval")):
            self._settle(node_id, "waiting")

    def repair(self) -> None:
        """Go on with a new plan after a corrupt result was set aside: what it lost, and what waited for it, runs."""
        plan = self._planning.again(self.plan)
        for node_id, planned in plan.nodes.items():
            stage = self._stages[node_id]
            held_up = stage.outcome == "skipped" and planned.decision != "skip"
            if self._is_lost(planned) or held_up or node_id in self._corrupt:
                self._stages[node_id] = describe(planned)
        self._corrupt.clear()
        self._take(plan)

    def save(self) -> None:
        """Write the record if it changed; a bucket takes one write of an object each second."""
        if not self._is_saved and time.monotonic() - self._saved_at > SAVE_SECONDS:
            write_run(self.store, self.record)
            self._is_saved, self._saved_at = True, time.monotonic()

    def finish(self) -> RunRecord:
        """Close the record; returns it."""
        outcome, message = self._verdict()
        for node_id in self._with_outcome("running"):
            self._settle(node_id, "stopped", message=message)
        for node_id in self._with_outcome("waiting"):
            if outcome != "waiting_approval":
                self._settle(node_id, "stopped" if outcome == "stopped" else "skipped")
        update = {"finished": now(), "outcome": outcome, "message": message}
        self._record = self._record.model_copy(update=update)
        write_run(self.store, self.record)
        return self.record

    def _verdict(self) -> tuple[RunOutcome, str]:
        if self.around.stop.requested:
            return "stopped", self.around.stop.reason
        if self._halted_by is not None:
            return "failed", f"gate {self._halted_by} did not pass"
        failed = [node_id for node_id in self._with_outcome("failed") if self._fails_run(node_id)]
        if failed:
            return "failed", ", ".join(failed)
        awaiting = [planned.node.id for planned in self.awaiting]
        return ("waiting_approval", ", ".join(awaiting)) if awaiting else ("succeeded", "")

    def _fails_run(self, node_id: str) -> bool:
        """Whether a failed node fails the run; a gate that was decided does so only where it ends it."""
        return self.plan.nodes[node_id].decision != "gate" or node_id in self._faults

    def _decisions(self) -> Decisions:
        return Decisions(self.plan, self.store, self._manifests, self._record.run_id)

    def _plan_rest(self) -> None:
        """What was chosen gives the nodes after it their keys, and with them what there is to do."""
        plan = self._planning.again(self.plan)
        set_damaged_aside(plan, self.store)
        for node_id in self._with_outcome("waiting"):
            before, after = self.plan.nodes[node_id], plan.nodes[node_id]
            if before.key is not None and (before.key, before.decision) != (after.key, after.decision):
                self._deviate(f"{node_id}: planned to {before.decision}, now to {after.decision}: {after.reason}")
            self._stages[node_id] = describe(after)
        for node_id, planned in plan.nodes.items():
            if self._is_lost(planned):
                self._deviate(f"{node_id}: its result was set aside meanwhile")
                self._stages[node_id] = describe(planned)
        self._take(plan)

    def _is_lost(self, planned: PlannedNode) -> bool:
        """Whether a new plan does not find what the run has had of a node."""
        is_choice = isinstance(planned.node, ActionNode) and isinstance(planned.node.action, SelectBest)
        is_missing = planned.decision in ("run", "resume", "wait") or (is_choice and planned.chosen is None)
        return is_missing and self.outcome(planned.node.id) in SATISFIED

    def _take(self, plan: Plan) -> None:
        self.plan = plan
        self._take_committed()

    def _take_committed(self) -> None:
        for planned in self.plan.nodes.values():
            if planned.manifest is not None:
                self._manifests[planned.manifest.key] = planned.manifest

    def _deviate(self, text: str) -> None:
        self._record = self._record.model_copy(update={"deviations": (*self._record.deviations, text)})

    def _with_outcome(self, outcome: StageOutcome) -> Iterator[str]:
        return iter([node_id for node_id, stage in self._stages.items() if stage.outcome == outcome])

    def _free_slots(self) -> dict[str, float]:
        """How many more of each group with a limit may run."""
        groups = {id_: n.node for id_, n in self.plan.nodes.items() if isinstance(n.node, StageNode)}
        limits = {node.group: node.max_parallel for node in groups.values() if node.max_parallel is not None}
        running = Counter(groups[node_id].group for node_id in self._with_outcome("running"))
        return {group: limit - running[group] for group, limit in limits.items()}

    def _skip_blocked(self) -> None:
        for node_id in self._with_outcome("waiting"):
            blocked = self._blocked_by(self.plan.nodes[node_id])
            if blocked is not None:
                self._settle(node_id, "skipped", message=blocked)

    def _before(self, planned: PlannedNode) -> list[str]:
        """The nodes that must come first; one that the user left out does not count."""
        needs = [*planned.node.needs, *([planned.same_as] if planned.same_as else [])]
        return [node_id for node_id in needs if self.plan.nodes[node_id].decision != "skip"]

    def _is_free(self, planned: PlannedNode) -> bool:
        return all(self._stages[node_id].outcome in SATISFIED for node_id in self._before(planned))

    def _applies(self, planned: PlannedNode) -> bool:
        """Whether a node's condition holds; one that does not is recorded as skipped."""
        verdict = self._decisions().applies(planned)
        if verdict is not None:
            self._take_verdict(planned.node.id, verdict)
        return verdict is None

    def _take_verdict(self, node_id: str, verdict: Verdict) -> None:
        self._settle(node_id, verdict.outcome, message=verdict.message, lines=verdict.lines)
        self.around.display.end(node_id, verdict.text)
        if verdict.is_fault:
            self._faults.add(node_id)
        if verdict.halts:
            self._halted_by = node_id

    def _blocked_by(self, planned: PlannedNode) -> str | None:
        if self._halted_by is not None:
            return f"gate {self._halted_by} did not pass"
        for node_id in self._before(planned):
            if self._stages[node_id].outcome in ("failed", "skipped", "stopped"):
                return f"{node_id}: {self._stages[node_id].outcome}"
        return None

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
    """Bring a plan to its end in which every stage is committed: gates and actions are left to do."""
    while ready := run.ready():
        for planned in ready:
            if not isinstance(planned.node, StageNode):
                run.decide(planned)
                continue
            assert planned.manifest is not None, "the plan has no work"
            run.done(planned.node.id, StageDone("Reused", planned.manifest, 0.0))
