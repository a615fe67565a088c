"""Decides for every node of a pipeline what a run would do with it, and why."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from pipelines.actions.gate_eval import RequirementOutcome, evaluate_condition
from pipelines.actions.reports import Report, read_metrics
from pipelines.spec.diagnostics import SpecError
from pipelines.spec.estimate import estimate_work
from pipelines.spec.expressions import ReportReference
from pipelines.spec.history import History
from pipelines.spec.identity import StoredIdentity
from pipelines.spec.nodes import (
    ActionNode,
    AliasOutput,
    Condition,
    GateNode,
    HumanGateNode,
    Node,
    Pipeline,
    SelectBest,
    StageNode,
    StageOutput,
)
from pipelines.spec.plan_actions import plan_select, plan_set_alias
from pipelines.spec.plan_aliases import PlanAliases
from pipelines.spec.plan_gates import nearest_before, plan_gate
from pipelines.spec.plan_stage import StageDecider
from pipelines.spec.planned import Plan, PlannedNode, produced_by
from pipelines.spec.selection import Selection, select
from pipelines.spec.stage_key import StageKeys
from stages.errors import UserError
from stages.store.conditional import ConditionalStore

Verify = Literal["list", "deep"]
"""How committed results are checked: by listing their files, or by the checksum of each."""


def make_plan(
    pipeline: Pipeline,
    store: ConditionalStore,
    force: Sequence[str] = (),
    only: Sequence[str] = (),
    until: str | None = None,
    *,
    refresh: Sequence[str] = (),
    run_id: str | None = None,
    verify: Verify = "list",
    before: Plan | None = None,
) -> Plan:
    """Compare a pipeline with what its store holds.

    Reads only, but for two things: in a plan for a run, a hit on a result that is condemned as garbage saves it, and
    `force` writes a new salt for each of these stages, which enters their keys in this and in every later plan.

    Args:
        pipeline: what to plan.
        store: where its results are.
        force: stages to run again for good; those whose keys the plan `before` knows were forced then.
        only: nodes to choose.
        until: the last node to choose, with all that it needs.
        refresh: stages to run again in this run only.
        run_id: the run that the plan is for; without one, it is a look at what a run would do.
        verify: how committed results are checked.
        before: the plan that this run made before, whose aliases, external content and salts stay.

    Raises:
        SpecError: an external input cannot be found, or an alias cannot be used.
        UserError: a flag names no stage, or a chosen stage needs what is neither committed nor chosen.
        StorageError: the store cannot be read.
    """
    selection = select(pipeline, only, until, force, refresh)
    history = History(store, pipeline.name, pipeline.profile)
    planner = _Planner(pipeline, store, history, selection, run_id, verify == "deep", before)
    for node in pipeline.nodes.values():
        planner.add(node)
    return Plan(pipeline, planner.planned, planner.aliases.found, estimate_work(planner.planned, history))


class _Planner:
    def __init__(
        self,
        pipeline: Pipeline,
        store: ConditionalStore,
        history: History,
        selection: Selection,
        run_id: str | None,
        deep: bool,
        before: Plan | None,
    ) -> None:
        self._pipeline = pipeline
        self._store = store
        self._selection = selection
        self._keys = StageKeys(pipeline, store, selection, run_id, before)
        self._decider = StageDecider(store, history, run_id, deep, before)
        self._absent: set[str] = set()
        self._unknown: dict[str, str] = {}
        self.aliases = PlanAliases(store, {} if before is None else before.aliases)
        self.planned: dict[str, PlannedNode] = {}

    def add(self, node: Node) -> None:
        """Decide about a node; all that it needs is decided already."""
        skipped = self._absent_input(node)
        outcome, fault = None, ""
        if node.condition is not None and skipped is None:
            try:
                outcome = self._look_at(node.condition)
            except UserError as error:
                fault = str(error)
        if outcome is not None and not outcome.passed:
            numbers = f" ({', '.join(outcome.numbers)})" if outcome.numbers else ""
            skipped = f"its condition does not hold: {outcome.text}{numbers}"
        if skipped is not None:
            self._absent.add(node.id)
            self.planned[node.id] = PlannedNode(node, "skip", skipped)
            return
        planned = self._decide(node)
        # What is not chosen is taken as other runs left it.
        if node.condition is not None and outcome is None and node.id in self._selection.chosen:
            reason = f"{planned.reason}; {f'fails: {fault}' if fault else f'if {node.condition.text}'}"
            planned = replace(planned, pending=node.condition, reason=reason)
        self.planned[node.id] = planned

    def _absent_input(self, node: Node) -> str | None:
        """Why a node cannot be: it takes something from, looks at or comes after what a condition has left out."""
        for output in _outputs(node):
            if output.stage in self._absent:
                return f"takes {output.reference}, which is left out"
        return next((f"needs {need}, which is left out" for need in node.needs if need in self._absent), None)

    def _look_at(self, condition: Condition) -> RequirementOutcome | None:
        """Whether it holds; none while a report is missing that it is about."""
        reports: dict[ReportReference, Report] = {}
        for value in condition.reports:
            report = self._committed_report(value)
            if report is None:
                return None
            reports[value.reference] = report
        return evaluate_condition(condition, reports)

    def _committed_report(self, value: StageOutput | AliasOutput) -> Report | None:
        if isinstance(value, AliasOutput):
            target = self.aliases.target(value)
            return read_metrics(self._store, target.manifest, target.output)
        output = produced_by(self.planned, value)
        manifest = self.planned[output.stage].manifest if output is not None else None
        return None if output is None or manifest is None else read_metrics(self._store, manifest, output.output)

    def _decide(self, node: Node) -> PlannedNode:
        if node.id in self._selection.chosen and node.condition is not None:
            self._check_available(node, node.condition.reports)
        match node:
            case StageNode():
                return self._stage(node)
            case ActionNode(action=SelectBest()):
                return self._select(node)
            case _ if node.id not in self._selection.chosen:
                return self._left_out(node)
            case ActionNode():
                self._check_available(node, _outputs(node))
                return plan_set_alias(node, self._store, self.planned)
            case GateNode():
                self._check_available(node, node.reports)
                for value in node.reports:
                    if isinstance(value, AliasOutput):
                        self.aliases.target(value)
                if node.on_fail == "ask":
                    self._check_asked(node)
            case HumanGateNode():
                self._check_asked(node)
        return plan_gate(node, self._pipeline, self._store, self.planned)

    def _left_out(self, node: Node) -> PlannedNode:
        return PlannedNode(node, "skip", f"left out by {self._selection.flag}")

    def _select(self, node: ActionNode) -> PlannedNode:
        reports = [self._committed_report(value) for value in node.inputs["reports"]]
        committed = [report for report in reports if report is not None]
        fault = ""
        if len(committed) == len(reports):
            try:
                return plan_select(node, committed)
            except UserError as error:
                fault = f"fails: {error}"
        self._unknown[node.id] = f"its key is known when {node.id} has chosen"
        if node.id not in self._selection.chosen:
            return self._left_out(node)
        self._check_available(node, _outputs(node))
        planned = plan_select(node, None)
        return replace(planned, reason=fault or planned.reason)

    def _stage(self, node: StageNode) -> PlannedNode:
        chosen = node.id in self._selection.chosen
        unknown = self._why_unknown(node)
        if unknown is not None:
            self._unknown[node.id] = unknown
            if not chosen:
                return self._left_out(node)
            self._check_available(node, _outputs(node))
            return PlannedNode(node, "run", unknown)
        try:
            identified = self._keys.identify(node, self._stored_inputs(node))
        except SpecError:
            if chosen:
                raise
            self._unknown[node.id] = f"left out by {self._selection.flag}"
            return self._left_out(node)
        planned = self._decider.committed(node, identified, self.planned)
        if planned is None or planned.damage is not None:
            if not chosen:
                return identified.of(self._left_out(node))
            self._check_available(node, _outputs(node))
        return planned or self._decider.to_run(node, identified, self.planned)

    def _why_unknown(self, node: StageNode) -> str | None:
        """Why the key of a stage is not known yet, if that is so."""
        for output in _outputs(node):
            produced = produced_by(self.planned, output)
            if produced is None:
                return self._unknown[output.stage]
            if self.planned[produced.stage].key is None:
                return self._unknown[produced.stage]
        return self._keys.why_unknown(node)

    def _stored_inputs(self, node: StageNode) -> dict[str, StoredIdentity]:
        found: dict[str, StoredIdentity] = {}
        for name, value in node.inputs.items():
            if isinstance(value, AliasOutput):
                target = self.aliases.target(value)
                found[name] = StoredIdentity(target.manifest.key, target.output)
            elif isinstance(value, StageOutput):
                produced = produced_by(self.planned, value)
                key = self.planned[produced.stage].key if produced is not None else None
                assert produced is not None and key is not None, "`_why_unknown` looks first"  # noqa: PT018
                found[name] = StoredIdentity(key, produced.output)
        return found

    def _check_available(self, node: Node, outputs: Iterable[StageOutput | AliasOutput]) -> None:
        for output in outputs:
            if isinstance(output, StageOutput) and self.planned[output.stage].decision == "skip":
                flag = self._selection.flag
                raise UserError(
                    f"{flag}: {node.id} takes {output.reference}, which is not committed: choose {output.stage} too"
                )

    def _check_asked(self, node: Node) -> None:
        for asked in nearest_before(node, self.planned):
            if self.planned[asked].decision == "skip":
                flag = self._selection.flag
                raise UserError(f"{flag}: {node.id} asks about {asked}, which is not committed: choose {asked} too")


def _outputs(node: Node) -> list[StageOutput]:
    """What a node takes from other nodes or looks at."""
    values: list[object] = [*(node.condition.reports if node.condition else ())]
    match node:
        case StageNode():
            values += node.inputs.values()
        case GateNode():
            values += node.reports
        case ActionNode():
            values += [output for outputs in node.inputs.values() for output in outputs]
        case HumanGateNode():
            pass
    return [value for value in values if isinstance(value, StageOutput)]
