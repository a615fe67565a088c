"""Why a stage has to run: what differs from the committed identity that is nearest to it."""

from collections.abc import Collection, Mapping

from pipelines.spec.field_changes import FieldChange, changed_fields, num_changes
from pipelines.spec.history import History
from pipelines.spec.nodes import AliasOutput, ExternalSource, StageNode
from pipelines.spec.planned import PlannedNode

_SHOWN_CHANGES = 3
_KEY_CHARACTERS = 4


def changes_since(
    history: History, node: StageNode, payload: bytes, others: Collection[str]
) -> tuple[FieldChange, ...] | None:
    """What differs from the nearest committed identity; none when there is none.

    That is what the stage of this name was in an earlier run of the pipeline, otherwise what has the most fields in
    common. `others` are keys of this plan's stages, which are not what the stage was before.
    """
    for key in history.same_stage(node.id, node.kind):
        before = history.payload(node.kind, key) if key not in others else None
        if before is not None:
            return changed_fields(before, payload)
    committed = [one.payload for one in history.committed(node.kind) if one.manifest.key not in others]
    if not committed:
        return None
    # `min` takes the first of equals, which is the newest.
    return changed_fields(min(committed, key=lambda old: num_changes(old, payload)), payload)


def reason_to_run(
    node: StageNode,
    changes: tuple[FieldChange, ...] | None,
    history: History,
    planned: Mapping[str, PlannedNode],
) -> str:
    """For example `with.kl_coef: 0.02 → 0.05` or `input model changed (sft 41c2→77ab: with.seed: 1 → 2)`.

    A changed input is followed upstream, through the stages of the plan, to the first field that differs.
    """
    if changes is None:
        return "never run"
    if not changes:
        return "run again"
    makers = {one.key: one for one in planned.values() if one.payload is not None}
    reasons = [_reason(node, change, history, makers) for change in changes]
    more = len(reasons) - _SHOWN_CHANGES
    return "; ".join(reasons[:_SHOWN_CHANGES]) + (f"; and {more} more" if more > 0 else "")


def _reason(node: StageNode, change: FieldChange, history: History, makers: Mapping[str | None, PlannedNode]) -> str:
    name = change.input
    value = node.inputs.get(name) if name is not None else None
    if isinstance(value, ExternalSource):
        return f"{change.path}: the content is now that of {value.uri}"
    moved = change.moved_keys
    if moved is None:
        return str(change)
    before, after = moved
    if isinstance(value, AliasOutput):
        return f"input {name} changed (alias {value.alias} {_arrow(before, after)})"
    return f"input {name} changed ({_upstream(before, after, history, makers)})"


def _upstream(before: str, after: str, history: History, makers: Mapping[str | None, PlannedNode]) -> str:
    """`sft 41c2→77ab: with.seed: 1 → 2`; without the cause where the plan does not make that input."""
    maker = makers.get(after)
    if maker is None or maker.payload is None:
        return _arrow(before, after)
    text = f"{maker.node.id} {_arrow(before, after)}"
    old = history.payload(maker.kind, before)
    if old is None:
        return text
    first = changed_fields(old, maker.payload)[0]
    moved = first.moved_keys
    return f"{text}: {first if moved is None else _upstream(*moved, history, makers)}"


def _arrow(before: str, after: str) -> str:
    return f"{before[:_KEY_CHARACTERS]}→{after[:_KEY_CHARACTERS]}"
