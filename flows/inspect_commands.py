"""The commands that only look: each returns the text to print. None of them loads Prefect."""

from argparse import Namespace

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan import make_plan
from pipelines.spec.render import render
from stages.errors import UserError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.holder import is_gone, this_holder
from stages.store.layout import StagePaths
from stages.store.progress import committed_points
from stages.store.runs import RunRecord, RunStage, latest_run
from stages.store.segments import read_log


def validate(arguments: Namespace) -> str:
    """Load the pipeline; raises `SpecError` with all that is wrong."""
    pipeline = _load(arguments)
    return f"{arguments.file}: valid, {len(pipeline.nodes)} stages and gates"


def plan(arguments: Namespace) -> tuple[str, bool]:
    """The plan as text or JSON, and whether there is work."""
    pipeline = _load(arguments)
    made = make_plan(pipeline, open_store(pipeline.store), (), arguments.only, arguments.until)
    return made.to_json() if arguments.json else render(made), made.has_work


def status(arguments: Namespace) -> str:
    """The latest run as text or JSON; a run whose process is gone without an end shows as failed."""
    store, record = _latest(arguments)
    if record.outcome == "running" and record.holder is not None and is_gone(record.holder, this_holder()):
        stages = tuple(_interrupted(stage) for stage in record.stages)
        update = {"outcome": "failed", "message": "its process is gone; run again to go on", "stages": stages}
        record = record.model_copy(update=update)
    if arguments.json:
        return record.model_dump_json(indent=2)
    return "\n".join([_headline(record), "", *_rows(store, record)])


def logs(arguments: Namespace) -> str:
    """What the newest attempts printed; with a stage's name, only of that one."""
    store, record = _latest(arguments)
    stages = [stage for stage in record.stages if stage.key is not None]
    if arguments.stage is None:
        printed = ((stage.id, _log(store, stage)) for stage in stages)
        return "\n".join(f"==> {name} <==\n{text}" for name, text in printed if text)
    for stage in stages:
        if stage.id == arguments.stage:
            return _log(store, stage) or f"{stage.id} has printed nothing yet\n"
    known = [stage.id for stage in stages]
    hint = did_you_mean(arguments.stage, known) or f"; it has {', '.join(known)}"
    raise UserError(f"{arguments.stage}: no stage of the latest run{hint}")


def report(arguments: Namespace) -> str:
    """Write the report of the latest run again; returns its path."""
    from tasks.places import cache_dir
    from tasks.report.content import gather
    from tasks.report.files import write_report

    store, record = _latest(arguments)
    return str(write_report(gather(store, record, cache_dir() / "reports"), store))


def _load(arguments: Namespace) -> Pipeline:
    return load_pipeline(arguments.file, arguments.profile, arguments.set)


def _latest(arguments: Namespace) -> tuple[ConditionalStore, RunRecord]:
    pipeline = _load(arguments)
    store = open_store(pipeline.store)
    record = latest_run(store, pipeline.name)
    if record is None:
        raise UserError(f"{pipeline.name} was never run with the store {store.uri}")
    return store, record


def _log(store: ConditionalStore, stage: RunStage) -> str:
    assert stage.key is not None
    return read_log(store, StagePaths(stage.kind, stage.key))


def _interrupted(stage: RunStage) -> RunStage:
    if stage.outcome == "running":
        return stage.model_copy(update={"outcome": "stopped"})
    return stage.model_copy(update={"outcome": "skipped"}) if stage.outcome == "waiting" else stage


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
    from tasks.display import describe_numbers

    return stage.message or describe_numbers(stage.numbers)
