"""`temper logs`: what the stages of the latest run printed."""

from argparse import ArgumentParser, Namespace

from flows.commands.arguments import add_file
from flows.commands.latest_run import latest
from pipelines.spec.diagnostics import did_you_mean
from stages.errors import UserError
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.runs import RunStage
from stages.store.segments import read_log


def add_arguments(parser: ArgumentParser) -> None:
    """The file, and perhaps one stage."""
    add_file(parser)
    parser.add_argument("stage", nargs="?", metavar="STAGE", help="only this stage")


def run(arguments: Namespace) -> int:
    """Print what the newest attempts printed; with a stage's name, only of that one."""
    store, record = latest(arguments)
    stages = [stage for stage in record.stages if stage.key is not None]
    if arguments.stage is None:
        printed = ((stage.id, _log(store, stage)) for stage in stages)
        print("\n".join(f"==> {name} <==\n{text}" for name, text in printed if text), end="")
    else:
        stage = _find(stages, arguments.stage)
        print(_log(store, stage) or f"{stage.id} has printed nothing yet\n", end="")
    return 0


def _find(stages: list[RunStage], name: str) -> RunStage:
    for stage in stages:
        if stage.id == name:
            return stage
    known = [stage.id for stage in stages]
    hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
    raise UserError(f"{name}: no stage of the latest run{hint}")


def _log(store: ConditionalStore, stage: RunStage) -> str:
    assert stage.key is not None
    return read_log(store, StagePaths(stage.kind, stage.key))
