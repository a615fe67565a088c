"""Arguments that several commands take."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Pipeline


def add_file(parser: ArgumentParser) -> None:
    """The pipeline file, with what is laid over it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the pipeline, a YAML file")
    parser.add_argument("--profile", metavar="NAME", help="lay this profile of the file over it")
    add_repeatable(
        parser, "--set", "PATH=VALUE", "override one value, for example params.seed=3 or stages.sft.with.num_steps=100"
    )


def add_selection(parser: ArgumentParser) -> None:
    """Which stages."""
    add_repeatable(parser, "--only", "STAGE", "run only this stage; what it needs must be committed")
    parser.add_argument("--until", metavar="STAGE", help="run this stage and what it needs, nothing after it")


def add_verify(parser: ArgumentParser) -> None:
    """How committed results are checked."""
    parser.add_argument(
        "--verify",
        choices=("list", "deep"),
        default="list",
        help="check committed results by listing their files (list), or by the checksum of each (deep)",
    )


def add_repeatable(parser: ArgumentParser, flag: str, value: str, text: str) -> None:
    """A flag whose values add up."""
    parser.add_argument(flag, action="append", default=[], metavar=value, help=f"{text} (repeatable)")


def load(arguments: Namespace) -> Pipeline:
    """The pipeline that `add_file` names; raises `SpecError` with all that is wrong."""
    return load_pipeline(arguments.file, arguments.profile, arguments.set)
