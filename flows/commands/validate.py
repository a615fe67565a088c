"""`temper validate`: is the file a pipeline?"""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file, load


def add_arguments(parser: ArgumentParser) -> None:
    """The file."""
    add_file(parser)


def run(arguments: Namespace) -> int:
    """Say that it is valid; raises `SpecError` with all that is wrong."""
    pipeline = load(arguments)
    print(f"{arguments.file}: valid, {len(pipeline.nodes)} stages, gates and actions")
    return 0
