"""`temper plan`: what a run would do, and why."""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file, add_repeatable, add_selection, add_verify, load
from pipelines.spec.plan import make_plan
from pipelines.spec.plan_json import plan_json
from pipelines.spec.plan_text import plan_text
from stages.store.conditional import open_store

WORK_TO_DO = 10


def add_arguments(parser: ArgumentParser) -> None:
    """The file, which stages, and how to print."""
    add_file(parser)
    add_selection(parser)
    add_repeatable(parser, "--refresh", "STAGE", "as if the run were told to run this stage again")
    add_verify(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument(
        "--exit-code", action="store_true", help=f"exit with {WORK_TO_DO} when a stage has to run or an alias to be set"
    )


def run(arguments: Namespace) -> int:
    """Print the plan."""
    pipeline = load(arguments)
    made = make_plan(
        pipeline,
        open_store(pipeline.store),
        (),
        arguments.only,
        arguments.until,
        refresh=arguments.refresh,
        verify=arguments.verify,
    )
    print(plan_json(made) if arguments.json else plan_text(made))
    return WORK_TO_DO if (made.has_work or made.has_effects) and arguments.exit_code else 0
