"""`temper runs`: what was run, from the archive in the store, whatever became of the scheduler's own history."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from datetime import datetime

from flows.commands.arguments import add_file, load
from flows.commands.dead_runs import as_it_stands
from stages.store.conditional import ConditionalStore, open_store
from stages.store.runs import RunRecord, list_runs, read_run
from tasks.display import describe_seconds

NUM_SHOWN = 20


def add_arguments(parser: ArgumentParser) -> None:
    """The file, how many, and how to print."""
    add_file(parser)
    parser.add_argument(
        "--limit", type=_number, default=NUM_SHOWN, metavar="N", help=f"the newest N, 0 for all ({NUM_SHOWN})"
    )
    parser.add_argument("--json", action="store_true", help="print the runs' records as JSON, one a line")


def run(arguments: Namespace) -> int:
    """Print the runs of a pipeline, newest first.

    Raises:
        StorageError: the store cannot be read.
    """
    pipeline = load(arguments)
    store = open_store(pipeline.store)
    records = _newest(store, pipeline.name, arguments.limit)
    if arguments.json:
        for record in records:
            print(record.model_dump_json())
    elif records:
        rows = [("started (UTC)", "outcome", "time", "stages and gates", "run"), *map(_row, records)]
        print("\n".join(_align(rows)))
    else:
        print(f"{pipeline.name} was never run with the store {store.uri}")
    return 0


def _number(text: str) -> int:
    if not text.isdigit():
        raise ArgumentTypeError(f"'{text}': expected a number of runs, 0 for all")
    return int(text)


def _newest(store: ConditionalStore, pipeline: str, limit: int) -> list[RunRecord]:
    ids = list_runs(store, pipeline)[::-1]
    found = (read_run(store, pipeline, run_id) for run_id in (ids[:limit] if limit else ids))
    return [as_it_stands(record) for record in found if record is not None]


def _row(record: RunRecord) -> tuple[str, ...]:
    started = record.started[:19].replace("T", " ")
    where = f"{record.run_id} {record.run_url or ''}".strip()
    profile = f" ({record.profile})" if record.profile else ""
    return started, record.outcome.replace("_", " ") + profile, _time(record), _counts(record), where


def _time(record: RunRecord) -> str:
    if record.finished is None:
        return ""
    return describe_seconds(
        (datetime.fromisoformat(record.finished) - datetime.fromisoformat(record.started)).total_seconds()
    )


def _counts(record: RunRecord) -> str:
    counted = Counter(stage.outcome for stage in record.stages)
    return ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in counted.most_common())


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
