"""The `temper` command."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from stages.errors import TemperError, UserError

DESCRIPTION = """\
Post-train language models from one YAML file.

A pipeline file names stages (prepare, sft, grpo, evaluation, export), their settings and what each takes from others.
`temper run` runs the stages that are not committed in the store yet, each in a process of its own, and reuses or
resumes the others: running the same file twice does nothing the second time, and a run that was killed goes on from
the last step that it saved. `temper plan` says beforehand what would happen, and why.
"""

EPILOG = """\
examples:
  temper plan pipelines/quickstart.yaml
  temper run pipelines/quickstart.yaml
  temper run pipelines/quickstart.yaml --profile long --set stages.grpo.with.num_steps=200
  temper run pipelines/quickstart.yaml --until sft
  temper logs pipelines/quickstart.yaml grpo

exit codes:
  0    done: every chosen stage is committed and no gate stopped the run
  1    a stage failed, a gate stopped the run, or the store could not be used
  2    bad usage, or a bad pipeline file
  3    a gate waits for approval: `temper approve FILE GATE`, then run again
  10   `temper plan --exit-code`: there is work to do; `temper diff --exit-code`: there is a difference
  130  stopped by Ctrl-C, progress saved (143: by SIGTERM); a second Ctrl-C ends at once, without saving

environment:
  PREFECT_API_URL   use this Prefect server; without it a run with work to do starts one for itself
  XDG_CACHE_HOME    downloaded sources, compiled programs and scratch go to `temper` below it (~/.cache)
  XDG_STATE_HOME    the locks on devices go to `temper` below it (~/.local/state)
"""


COMMANDS = {
    "validate": "check a pipeline file and say what is wrong with it, with line numbers",
    "render": "print a pipeline with everything worked in, and where each value was written",
    "plan": "say for each stage whether it would run, resume or be reused, and why",
    "diff": "say where two runs or two results begin to differ",
    "run": "run what is not committed yet, then write the report",
    "approve": "answer a gate that asks a person",
    "status": "show the latest run of a pipeline",
    "logs": "show what the stages of the latest run printed",
    "runs": "list the runs of a pipeline, from the archive in its store",
    "report": "write the report of the latest run again and say where it is",
    "up": "start a Prefect server with its pages and a worker, until Ctrl-C",
    "deploy": "have a pipeline run by a worker, when asked from the pages or by its schedule",
    "lineage": "show what a result was made from, or what was made of it",
    "fetch": "copy an output of a result, such as an exported model, to a folder",
    "gc": "delete what no alias, approval, recent run or unfinished work needs",
}
"""Each is a module in `flows.commands`, loaded when it is called: to help takes no library."""


class Command(Protocol):
    """What a module in `flows.commands` has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it and print; returns the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        return _run(argv)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return 0
    except TemperError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] not in COMMANDS:
        _overview().parse_args(argv)
        raise AssertionError("the overview lets no command through that is not in the table")
    name = argv[0]
    summary = COMMANDS[name]
    command = cast("Command", importlib.import_module(f"flows.commands.{name}"))
    parser = argparse.ArgumentParser(prog=f"temper {name}", description=f"{summary[0].upper()}{summary[1:]}.")
    command.add_arguments(parser)
    return command.run(parser.parse_intermixed_args(argv[1:]))


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="temper",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser


if __name__ == "__main__":
    sys.exit(main())
