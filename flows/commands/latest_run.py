"""The latest run of the pipeline that a command names."""

from argparse import Namespace

from flows.commands.arguments import load
from stages.errors import UserError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.runs import RunRecord, latest_run


def latest(arguments: Namespace) -> tuple[ConditionalStore, RunRecord]:
    """Its store and its record.

    Raises:
        UserError: the pipeline was never run.
    """
    pipeline = load(arguments)
    store = open_store(pipeline.store)
    record = latest_run(store, pipeline.name)
    if record is None:
        raise UserError(f"{pipeline.name} was never run with the store {store.uri}")
    return store, record
