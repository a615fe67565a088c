"""The end of a run: its record, its report, who is told, and what the terminal says."""

from rich.console import Console

from flows.notify import notify
from flows.pipeline_run import PipelineRun
from stages.errors import TemperError
from tasks.places import cache_dir
from tasks.report.content import Content, gather
from tasks.report.files import write_report
from tasks.summary import print_summary


def close_run(run: PipelineRun, console: Console) -> Content:
    """Write the record and the report, also of a run that failed, and show how it ended.

    Returns:
        The record with what the report shows beside it, as far as it can be read.
    """
    record = run.finish()
    notify(run.plan.pipeline.notify, record)
    try:
        content = gather(run.store, record, cache_dir() / "reports")
        report = write_report(content, run.store)
    except TemperError as error:
        console.print(f"no report: {error}", markup=False, highlight=False, soft_wrap=True)
        return Content(record, (), (), ())
    print_summary(content, console)
    console.print(f"report: {report}", markup=False, highlight=False, soft_wrap=True)
    return content
