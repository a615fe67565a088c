"""`temper plan`: what a run would do, and why."""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file, add_selection, load
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_json import plan_json
from pipelines.spec.plan_text import plan_text
from stages.store.conditional import open_store

WORK_TO_DO = 10


def add_arguments(parser: ArgumentParser) -> None:
    """The file, which stages, and how to print."""
    add_file(parser)
    add_selection(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument("--exit-code", action="store_true", help=f"exit with {WORK_TO_DO} when there is work to do")


def run(arguments: Namespace) -> int:
    """Print the plan."""
    pipeline = load(arguments)
    made = make_plan(pipeline, open_store(pipeline.store), (), arguments.only, arguments.until)
    print(plan_json(made) if arguments.json else plan_text(made))
    return WORK_TO_DO if made.has_work and arguments.exit_code else 0
