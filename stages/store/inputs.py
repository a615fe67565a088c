"""A stage's committed inputs as local folders, every byte checked while it is read."""

from pathlib import Path

from stages.contract import StoredBase, StoredInput
from stages.errors import CorruptArtifactError, UserError
from stages.store.conditional import ConditionalStore, CorruptObjectError
from stages.store.layout import StagePaths
from stages.store.manifest import claim_manifest


def fetch_input(store: ConditionalStore, stored: StoredInput, target: Path) -> Path:
    """The local folder of an output of another stage: the store's own when it is local, else `target`.

    Raises:
        CorruptArtifactError: a file is missing or its bytes are not the committed ones; names producer and file.
    """
    folder = target
    for entry in stored.files:
        path = f"{stored.folder}/{entry.path}"
        try:
            local = store.fetch(path, entry, target / entry.path)
        except CorruptObjectError as error:
            raise CorruptArtifactError(
                f"{stored.stage} {stored.key[:16]}, output '{stored.output}', {entry.path}: {error}",
                stored.stage,
                stored.key,
            ) from error
        folder = local.parents[entry.path.count("/")]
    return folder


def find_base(store: ConditionalStore, base: StoredBase) -> StoredInput:
    """The output that an adapter was trained over.

    Raises:
        UserError: it is not in the store any more, or was made again with other bytes.
    """
    name = f"the base model of {base.stage} {base.key[:16]}, output '{base.output}',"
    manifest = claim_manifest(store, StagePaths(base.stage, base.key))
    if manifest is None or base.output not in manifest.outputs:
        raise UserError(f"{name} that the adapter lies over is not in the store any more; run its stage again")
    found = manifest.as_input(base.output)
    if {entry.path: entry.crc32c for entry in found.files} != base.checksums:
        raise UserError(
            f"{name} was made again with other weights than the adapter was trained over; train the adapter again"
        )
    return found
