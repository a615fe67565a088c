"""`temper diff`: the first stage and field in which two results, or two runs, differ, and what follows from it."""

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from pydantic import JsonValue

from flows.commands.arguments import add_file, load
from pipelines.spec.diff import Difference, Identities, Side, StageDifference, compare_results, compare_sides
from pipelines.spec.field_changes import FieldChange
from pipelines.spec.identity import KEY_SHOWN
from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.plan import make_plan
from stages.catalog import STAGES
from stages.errors import UserError
from stages.store.aliases import read_alias
from stages.store.conditional import ConditionalStore, open_store
from stages.store.runs import RunRecord, is_run_id, latest_run, read_run

DIFFERENT = 10
_KEY = re.compile(r"[0-9a-f]{8,64}")


def add_arguments(parser: ArgumentParser) -> None:
    """The file, the two sides, and how to print."""
    add_file(parser)
    for name, text in (("before", "the one side"), ("after", "the other side")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help=f"{text}: a run's id, `latest` for the latest run, `plan` for the pipeline as it is now; "
            "or an alias, or 8 or more characters of a key",
        )
    parser.add_argument("--json", action="store_true", help="print the difference as JSON")
    parser.add_argument("--exit-code", action="store_true", help=f"exit with {DIFFERENT} when there is a difference")


def run(arguments: Namespace) -> int:
    """Print what differs.

    Raises:
        UserError: a side names nothing, or one is a run and the other a result.
    """
    pipeline = load(arguments)
    store = open_store(pipeline.store)
    identities = Identities(store)
    before, after = (_side(pipeline, store, identities, text) for text in (arguments.before, arguments.after))
    if isinstance(before, Side) and isinstance(after, Side):
        difference = compare_sides(identities, before, after)
    elif isinstance(before, str) and isinstance(after, str):
        difference = compare_results(identities, before, after)
    else:
        raise UserError(f"{arguments.before} and {arguments.after}: a run compares with a run, a result with a result")
    print(json.dumps(_plain(difference), indent=2) if arguments.json else "\n".join(_lines(difference)))
    return DIFFERENT if arguments.exit_code and not difference.is_empty else 0


def _side(pipeline: Pipeline, store: ConditionalStore, identities: Identities, text: str) -> Side | str:
    """The stages of a run, or the key of a result."""
    if text == "plan":
        planned = make_plan(pipeline, store).nodes
        keys = {node_id: one.key for node_id, one in planned.items() if isinstance(one.node, StageNode)}
        return Side(keys, {one.key: one.payload for one in planned.values() if one.key and one.payload})
    if text == "latest" or is_run_id(text):
        record = latest_run(store, pipeline.name) if text == "latest" else read_run(store, pipeline.name, text)
        if record is None:
            raise UserError(f"{text}: {pipeline.name} has no such run in the store {store.uri}")
        return Side(_keys(record))
    alias = read_alias(store, text)
    if alias is not None:
        return identities.find(alias[0].checkpoint.key)
    if not _KEY.fullmatch(text):
        raise UserError(f"'{text}': no run, `latest`, `plan`, alias, or 8 or more characters of a key")
    return identities.find(text)


def _keys(record: RunRecord) -> dict[str, str | None]:
    return {stage.id: stage.key for stage in record.stages if stage.kind in STAGES}


def _lines(difference: Difference) -> Iterator[str]:
    if difference.is_empty:
        yield "no difference"
        return
    first = difference.first
    if first is not None:
        yield f"first difference: {first.stage}, {first.cause or 'whose identity is not in the store'}"
        yield ""
    width = max((len(stage.stage) for stage in difference.stages), default=0)
    for stage in difference.stages:
        yield f"{stage.stage:{width}}  {stage.before[:KEY_SHOWN]} → {stage.after[:KEY_SHOWN]}  {_what(stage)}"
    for stages, what in (
        (difference.only_before, "only in the first"),
        (difference.only_after, "only in the second"),
        (difference.unknown, "not known on one side"),
    ):
        if stages:
            yield f"{what}: {', '.join(stages)}"


def _what(stage: StageDifference) -> str:
    inputs = [change.input for change in stage.changes if change.moved_keys is not None]
    own = [str(change) for change in stage.changes if change.moved_keys is None]
    return "; ".join([*own, *(f"input {name}" for name in inputs)]) or "not in the store"


def _plain(difference: Difference) -> dict[str, JsonValue]:
    first = difference.first
    return {
        "same": difference.is_empty,
        "first": None if first is None else {"stage": first.stage, "change": _change(first.cause)},
        "stages": [
            {
                "stage": stage.stage,
                "before": stage.before,
                "after": stage.after,
                "changes": [_change(change) for change in stage.changes],
            }
            for stage in difference.stages
        ],
        "only_before": list(difference.only_before),
        "only_after": list(difference.only_after),
        "unknown": list(difference.unknown),
    }


def _change(change: FieldChange | None) -> JsonValue:
    return None if change is None else {"path": change.path, "before": change.before, "after": change.after}
