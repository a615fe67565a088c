"""`temper fetch`: copies an output of a result out of the store."""

import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flows.commands.arguments import add_file, load
from flows.commands.results import RESULT_HELP, find_result
from stages.contract import StoredInput
from stages.errors import UserError
from stages.store.conditional import ConditionalStore, open_store
from stages.store.inputs import fetch_input
from stages.store.io_errors import io_errors
from stages.store.lineage import Origin
from stages.store.survey import Survey, survey


def add_arguments(parser: ArgumentParser) -> None:
    """The file, the result, and where it goes."""
    add_file(parser)
    parser.add_argument("result", metavar="RESULT", help=RESULT_HELP)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a folder that is not there yet, or is empty")


def run(arguments: Namespace) -> int:
    """Copy the files, each checked against its manifest, and say where they are.

    Raises:
        UserError: the result is not committed, has several outputs and none is named, or the folder is in use.
        StorageError: a file cannot be read or written.
    """
    pipeline, folder = load(arguments), arguments.folder
    store = open_store(pipeline.store)
    found = survey(store)
    stored = _stored(store, found, find_result(pipeline, store, found, arguments.result), arguments.result)
    with io_errors("write", folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{folder}: is there already; name a folder that is not, or an empty one")
        place = fetch_input(store, stored, folder)
        if place != folder:
            # Not the rights of files, which a store on disk makes read-only.
            shutil.copytree(place, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    size = sum(entry.size for entry in stored.files)
    print(f"{stored.output} of {stored.stage} {stored.key[:16]}: {len(stored.files)} files, {size:,} bytes in {folder}")
    return 0


def _stored(store: ConditionalStore, found: Survey, result: Origin, text: str) -> StoredInput:
    stage = found.stages.get(result.key or "")
    if stage is None or stage.committed is None:
        raise UserError(f"'{text}': not committed in the store {store.uri}")
    outputs = stage.committed.outputs
    output = result.output or next(iter(outputs))
    if output not in outputs or (result.output is None and len(outputs) > 1):
        example = f"{text.partition('/')[0]}/{next(iter(outputs))}"
        raise UserError(f"'{text}': name one of its outputs, as in {example}: {', '.join(outputs)}")
    return stage.committed.as_input(output)
