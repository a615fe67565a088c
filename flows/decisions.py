"""What the flow's own process decides: conditions, gates and actions, on what is committed."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.actions.gate_eval import evaluate_condition, evaluate_gate
from pipelines.actions.reports import Report, read_metrics, read_report
from pipelines.actions.select_best import decide_select
from pipelines.actions.set_alias import point_alias
from pipelines.spec.command_line import command_line
from pipelines.spec.expressions import ReportReference
from pipelines.spec.nodes import ActionNode, AliasOutput, GateNode, HumanGateNode, SetAlias, StageNode, StageOutput
from pipelines.spec.plan_gates import stages_before, standing_approval
from pipelines.spec.planned import CommittedOutput, Plan, PlannedNode, produced_by
from stages.errors import TemperError
from stages.store.conditional import ConditionalStore
from stages.store.manifest import Manifest
from stages.store.runs import StageOutcome
from tasks.places import cache_dir


@dataclass(frozen=True)
class Verdict:
    """What became of a gate or an action.

    Attributes:
        outcome: for the record.
        message: why, in one line.
        lines: a gate's requirements with their numbers.
        halts: whether the run ends with it.
        is_fault: whether it failed because it could not be decided or done, which fails the run.
        chosen: which candidate `select_best` took, from 0.
    """

    outcome: StageOutcome
    message: str = ""
    lines: tuple[str, ...] = ()
    halts: bool = False
    is_fault: bool = False
    chosen: int | None = None

    @property
    def text(self) -> str:
        """For the terminal."""
        words = {"failed": "failed" if self.is_fault else "not passed", "waiting_approval": "waits for approval"}
        word = words.get(self.outcome, self.outcome)
        return "\n  ".join((f"{word}: {self.message}" if self.message else word, *self.lines))


class Decisions:
    """Decides for one run."""

    def __init__(self, plan: Plan, store: ConditionalStore, manifests: Mapping[str, Manifest], run_id: str) -> None:
        """`manifests` holds by key what is committed."""
        self._plan = plan
        self._store = store
        self._manifests = manifests
        self._run_id = run_id

    def applies(self, planned: PlannedNode) -> Verdict | None:
        """None if the node's condition holds, or it has none; otherwise what becomes of the node."""
        if planned.pending is None:
            return None
        try:
            outcome = evaluate_condition(planned.pending, self._reports(planned.pending.reports))
        except TemperError as error:
            return Verdict("failed", str(error), is_fault=True)
        return None if outcome.passed else Verdict("skipped", "its condition does not hold", (str(outcome),))

    def decide(self, planned: PlannedNode) -> Verdict:
        """Decide a gate or do an action; what it needs is committed."""
        try:
            match planned.node:
                case GateNode():
                    return self._gate(planned, planned.node)
                case HumanGateNode():
                    return self._ask(planned, "")
                case ActionNode():
                    return self._act(planned, planned.node)
                case StageNode():
                    raise AssertionError("stages run in processes of their own")
        except TemperError as error:
            return Verdict("failed", str(error), is_fault=True)

    def _gate(self, planned: PlannedNode, gate: GateNode) -> Verdict:
        outcome = evaluate_gate(gate, self._reports(gate.reports))
        if outcome.passed:
            return Verdict("passed", lines=outcome.lines)
        message = "a requirement is not met"
        if gate.on_fail == "ask":
            return self._ask(planned, message, outcome.lines)
        return Verdict("failed", message, outcome.lines, halts=gate.on_fail == "stop")

    def _ask(self, planned: PlannedNode, why: str, lines: tuple[str, ...] = ()) -> Verdict:
        """What a person decided about the results as they are now."""
        asked = stages_before(planned.node, self._plan.nodes)
        assert planned.key is not None, "the stages before a gate have keys when it is decided"
        assert asked is not None, "the stages before a gate have keys when it is decided"
        manifests = {node_id: self._manifests.get(key) for node_id, key in asked.items()}
        approval = standing_approval(self._store, planned.key, manifests)
        if approval is None:
            how = command_line(self._plan.pipeline, "approve", planned.node.id)
            return Verdict("waiting_approval", f"{why}: {how}" if why else how, lines)
        comment = f": {approval.comment}" if approval.comment else ""
        if approval.approved:
            return Verdict("passed", f"approved by {approval.by}{comment}", lines)
        return Verdict("failed", f"rejected by {approval.by}{comment}", lines, halts=True)

    def _act(self, planned: PlannedNode, node: ActionNode) -> Verdict:
        if isinstance(node.action, SetAlias):
            checkpoint, *_ = node.inputs["checkpoint"]
            report = node.inputs.get("report")
            compared = self._plan.aliases.get(node.action.alias)
            said = point_alias(
                self._store,
                node.action.alias,
                self._committed(checkpoint),
                self._committed(report[0]) if report else None,
                self._run_id,
                compared.record if compared else None,
            )
            return Verdict("done", said)
        reports = [self._metrics(output) for output in node.inputs["reports"]]
        index = decide_select(node, reports)
        return Verdict("done", f"chose {node.inputs['candidates'][index].stage}", chosen=index)

    def _metrics(self, output: StageOutput) -> Report:
        found = self._committed(output)
        return read_metrics(self._store, found.manifest, found.output)

    def _reports(self, outputs: tuple[StageOutput | AliasOutput, ...]) -> dict[ReportReference, Report]:
        """The reports, by what they are called where they are looked at."""
        reports: dict[ReportReference, Report] = {}
        for output in outputs:
            found = self._committed(output)
            reports[output.reference] = read_report(self._store, found.manifest, found.output, cache_dir() / "reports")
        return reports

    def _committed(self, output: StageOutput | AliasOutput) -> CommittedOutput:
        if isinstance(output, AliasOutput):
            aliased = self._plan.aliases[output.alias].output(output.artifact)
            assert aliased is not None, "the plan refuses an alias without a report where one is wanted"
            return aliased
        produced = produced_by(self._plan.nodes, output)
        assert produced is not None, "what an action chooses is known when the nodes after it go"
        key = self._plan.nodes[produced.stage].key
        assert key is not None, "a stage that is committed has a key"
        return CommittedOutput(self._manifests[key], produced.output)
