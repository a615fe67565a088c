"""The `temper` command."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stages.errors import TemperError, UserError

DESCRIPTION = """\
Post-train language models from one YAML file.

A pipeline file names stages (prepare, sft, grpo, evaluation), their settings and what they take from each other.
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
  10   `temper plan --exit-code`: there is work to do
  130  stopped by Ctrl-C, progress saved (143: by SIGTERM); a second Ctrl-C ends at once, without saving

environment:
  PREFECT_API_URL   use this Prefect server; without it a run with work to do starts one for itself
  XDG_CACHE_HOME    downloaded sources, compiled programs and scratch go to `temper` below it (~/.cache)
  XDG_STATE_HOME    the locks on devices go to `temper` below it (~/.local/state)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        sys.stderr.close()
        return 0
    except TemperError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1


def _dispatch(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "run":
            from flows.run_command import run

            return run(arguments)
        case "validate":
            from flows.inspect_commands import validate

            print(validate(arguments))
        case "plan":
            from flows.inspect_commands import plan

            text, has_work = plan(arguments)
            print(text)
            return 10 if has_work and arguments.exit_code else 0
        case "status":
            from flows.inspect_commands import status

            print(status(arguments))
        case "logs":
            from flows.inspect_commands import logs

            print(logs(arguments), end="")
        case "report":
            from flows.inspect_commands import report

            print(report(arguments))
        case command:
            raise AssertionError(f"the parser lets no command `{command}` through")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="temper",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        _add_file(command)
        return command

    add("validate", "check a pipeline file and say what is wrong with it, with line numbers")
    plan = add("plan", "say for each stage whether it would run, resume or be reused, and why")
    _add_selection(plan)
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.add_argument("--exit-code", action="store_true", help="exit with 10 when there is work to do")
    run = add("run", "run what is not committed yet, then write the report")
    _add_selection(run)
    _add_repeatable(run, "--force", "STAGE", "run a committed stage again; later plans use its new result")
    status = add("status", "show the latest run of a pipeline")
    status.add_argument("--json", action="store_true", help="print the run's record as JSON")
    logs = add("logs", "show what the stages of the latest run printed")
    logs.add_argument("stage", nargs="?", metavar="STAGE", help="only this stage")
    add("report", "write the report of the latest run again and say where it is")
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the pipeline, a YAML file")
    parser.add_argument("--profile", metavar="NAME", help="lay this profile of the file over it")
    _add_repeatable(
        parser, "--set", "PATH=VALUE", "override one value, for example params.seed=3 or stages.sft.with.num_steps=100"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    _add_repeatable(parser, "--only", "STAGE", "run only this stage; what it needs must be committed")
    parser.add_argument("--until", metavar="STAGE", help="run this stage and what it needs, nothing after it")


def _add_repeatable(parser: argparse.ArgumentParser, flag: str, value: str, text: str) -> None:
    parser.add_argument(flag, action="append", default=[], metavar=value, help=f"{text} (repeatable)")


if __name__ == "__main__":
    sys.exit(main())
