"""`temper render`: the resolved pipeline, and where each of its values was written."""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file
from pipelines.spec.load import load_with_text
from pipelines.spec.render import render, render_json


def add_arguments(parser: ArgumentParser) -> None:
    """The file, and how to print."""
    add_file(parser)
    parser.add_argument("--json", action="store_true", help="print values and their places as JSON")


def run(arguments: Namespace) -> int:
    """Print it; raises `SpecError` with all that is wrong."""
    loaded = load_with_text(arguments.file, arguments.profile, arguments.set)
    if arguments.json:
        print(render_json(loaded, arguments.profile))
    else:
        print(render(loaded, arguments.profile), end="")
    return 0
