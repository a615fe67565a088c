"""`temper status`: the latest run, stage by stage."""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file
from flows.commands.dead_runs import as_it_stands
from flows.commands.latest_run import latest
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.progress import committed_points
from stages.store.runs import RunRecord, RunStage
from tasks.display import describe_numbers


def add_arguments(parser: ArgumentParser) -> None:
    """The file, and how to print."""
    add_file(parser)
    parser.add_argument("--json", action="store_true", help="print the run's record as JSON")


def run(arguments: Namespace) -> int:
    """Print the latest run; one whose process is gone without an end shows as failed."""
    store, record = latest(arguments)
    record = as_it_stands(record)
    if arguments.json:
        print(record.model_dump_json(indent=2))
    else:
        print("\n".join([_headline(record), "", *_rows(store, record)]))
    return 0


def _headline(record: RunRecord) -> str:
    message = f": {record.message}" if record.message else ""
    url = f", {record.run_url}" if record.run_url and record.outcome == "running" else ""
    return f"{record.pipeline} {record.outcome}{message} (run {record.run_id}, started {record.started[:19]} UTC{url})"


def _rows(store: ConditionalStore, record: RunRecord) -> list[str]:
    width = max(len(stage.id) for stage in record.stages)
    return [f"{stage.id:{width}}  {stage.outcome:8}  {_detail(store, stage)}".rstrip() for stage in record.stages]


def _detail(store: ConditionalStore, stage: RunStage) -> str:
    if stage.outcome in ("running", "stopped", "failed") and stage.key is not None:
        points = committed_points(store, StagePaths(stage.kind, stage.key))
        saved = f"saved step {points[0].step}" if points else "nothing saved yet"
        first = stage.message.splitlines()[0] if stage.message else ""
        return "; ".join(part for part in (first, saved) if part)
    if stage.lines:
        return "; ".join(stage.lines)
    return stage.message or describe_numbers(stage.numbers)
