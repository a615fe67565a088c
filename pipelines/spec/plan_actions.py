"""What actions would do: which candidate is the best, where an alias would point."""

from collections.abc import Mapping, Sequence

from pipelines.actions.reports import Report
from pipelines.actions.select_best import decide_select, selected_values
from pipelines.spec.identity import KEY_SHOWN
from pipelines.spec.nodes import ActionNode, SelectBest, SetAlias, StageNode, StageOutput
from pipelines.spec.planned import PlannedNode, produced_by
from stages.store.aliases import AliasTarget, read_alias
from stages.store.conditional import ConditionalStore


def plan_select(node: ActionNode, reports: Sequence[Report] | None) -> PlannedNode:
    """The choice among candidates; without `reports` it is left to the run.

    Raises:
        UserError: a report lacks the metric.
    """
    assert isinstance(node.action, SelectBest)
    metric, mode, count = node.action.metric, node.action.mode, len(node.inputs["candidates"])
    if reports is None:
        return PlannedNode(node, "action", f"chooses the {mode} of {metric} among {count}")
    chosen = decide_select(node, reports)
    value = selected_values(node, reports)[chosen]
    best = node.inputs["candidates"][chosen].stage
    reason = f"chose {best}: {metric} = {value:.4g}, {mode} of {count}"
    return PlannedNode(node, "action", reason, chosen=chosen, is_settled=True)


def plan_set_alias(node: ActionNode, store: ConditionalStore, planned: Mapping[str, PlannedNode]) -> PlannedNode:
    """Where the alias would point, and whether it does already."""
    assert isinstance(node.action, SetAlias)
    name = node.action.alias
    checkpoint = node.inputs["checkpoint"][0]
    wanted = _identity(checkpoint, planned)
    found = read_alias(store, name)
    if wanted is None:
        return PlannedNode(node, "action", f"alias {name} → {checkpoint.reference}")
    now = found[0] if found is not None else None
    report = _identity(node.inputs["report"][0], planned) if "report" in node.inputs else None
    if now is not None and (_of(now.checkpoint), _of(now.report)) == (wanted, report):
        return PlannedNode(node, "action", f"alias {name} is {_shown(wanted)} already", is_settled=True)
    before = f" (now {_shown(_of(now.checkpoint))})" if now is not None else ""
    return PlannedNode(node, "action", f"alias {name} → {_shown(wanted)}{before}")


_Target = tuple[str, str, str]


def _identity(output: StageOutput, planned: Mapping[str, PlannedNode]) -> _Target | None:
    """Kind, key and name of an output; none while they are not known."""
    produced = produced_by(planned, output)
    stage = planned[produced.stage] if produced is not None else None
    if produced is None or stage is None or stage.key is None:
        return None
    assert isinstance(stage.node, StageNode)
    return stage.node.kind, stage.key, produced.output


def _of(target: AliasTarget | None) -> _Target | None:
    return None if target is None else (target.stage, target.key, target.output)


def _shown(target: _Target | None) -> str:
    return f"{target[0]} {target[1][:KEY_SHOWN]}" if target is not None else "nothing"
