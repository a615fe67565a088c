"""`temper report`: the page of the latest run, written again."""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file
from flows.commands.latest_run import latest
from tasks.places import cache_dir
from tasks.report.content import gather
from tasks.report.files import write_report


def add_arguments(parser: ArgumentParser) -> None:
    """The file."""
    add_file(parser)


def run(arguments: Namespace) -> int:
    """Write it and print where it is."""
    store, record = latest(arguments)
    print(write_report(gather(store, record, cache_dir() / "reports"), store))
    return 0
