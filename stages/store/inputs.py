"""A stage's committed inputs as local folders, every byte checked while it is read."""

from pathlib import Path

from stages.contract import StoredInput
from stages.errors import CorruptArtifactError
from stages.store.conditional import ConditionalStore, CorruptObjectError


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
