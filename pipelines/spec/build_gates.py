"""Checks the gates and actions of a pipeline file."""

from pipelines.spec.gate_sections import EvalGateSection, HumanGateSection, SelectBestSection, SetAliasSection
from pipelines.spec.graph import Draft
from pipelines.spec.nodes import ActionNode, Condition, GateNode, HumanGateNode, SelectBest, SetAlias, StageOutput
from pipelines.spec.validation import validate
from pipelines.spec.wiring import Wiring
from stages.contract import Artifact, ModelArtifact, ReportArtifact


def build_eval_gate(draft: Draft, wiring: Wiring) -> GateNode | None:
    """The gate, or none when problems were added."""
    section = validate(EvalGateSection, draft.table, draft.path, draft.problems, draft.place)
    if section is None:
        return None
    report = wiring.output(section.inputs.report, ("inputs", "report"), ReportArtifact)
    found = [wiring.condition(text, ("require", index), own_report=True) for index, text in enumerate(section.require)]
    require = tuple(condition for condition in found if condition is not None)
    condition = _condition(section.if_, wiring)
    wiring.add_needs(section.needs)
    if report is None:
        return None
    return GateNode(
        draft.id, {"report": report}, require, section.on_fail, wiring.needs, draft.place, condition=condition
    )


def build_human_gate(draft: Draft, wiring: Wiring) -> HumanGateNode | None:
    """The gate, or none when problems were added."""
    section = validate(HumanGateSection, draft.table, draft.path, draft.problems, draft.place)
    if section is None:
        return None
    wiring.add_needs(section.needs)
    condition = _condition(section.if_, wiring)
    return HumanGateNode(
        draft.id, wiring.needs, section.ask.approvers, section.ask.timeout, draft.place, condition=condition
    )


def build_set_alias(draft: Draft, wiring: Wiring) -> ActionNode | None:
    """The action, or none when problems were added."""
    section = validate(SetAliasSection, draft.table, draft.path, draft.problems, draft.place)
    if section is None:
        return None
    given: dict[str, tuple[str, type[Artifact]]] = {"checkpoint": (section.inputs.checkpoint, ModelArtifact)}
    if section.inputs.report is not None:
        given["report"] = (section.inputs.report, ReportArtifact)
    inputs: dict[str, tuple[StageOutput, ...]] = {}
    for name, (text, wanted) in given.items():
        output = wiring.output(text, ("inputs", name), wanted)
        if output is not None:
            inputs[name] = (output,)
    wiring.add_needs(section.needs)
    condition = _condition(section.if_, wiring)
    action = SetAlias(section.with_.alias)
    return ActionNode(draft.id, action, inputs, wiring.needs, draft.place, condition=condition)


def build_select_best(draft: Draft, wiring: Wiring) -> ActionNode | None:
    """The action, or none when problems were added."""
    section = validate(SelectBestSection, draft.table, draft.path, draft.problems, draft.place)
    if section is None:
        return None
    candidates = wiring.outputs(section.inputs.candidates, ("inputs", "candidates"), ModelArtifact)
    reports = wiring.outputs(section.inputs.reports, ("inputs", "reports"), ReportArtifact)
    if candidates and reports and len(candidates) != len(reports):
        message = f"{len(reports)} reports for {len(candidates)} candidates: each has one, in the same order"
        entry = draft.table.entries["inputs"]
        draft.problems.add(entry.key_place, (*draft.path, "inputs", "reports"), message)
    wiring.add_needs(section.needs)
    condition = _condition(section.if_, wiring)
    action = SelectBest(section.with_.metric, section.with_.mode)
    inputs = {"candidates": candidates, "reports": reports}
    return ActionNode(draft.id, action, inputs, wiring.needs, draft.place, condition=condition)


def _condition(text: str | None, wiring: Wiring) -> Condition | None:
    return None if text is None else wiring.condition(text, ("if",), own_report=False)
