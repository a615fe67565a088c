"""A stage's finished outputs, from local folders to the attempt's own folder in the store."""

from pathlib import Path

from stages.contract import FileEntry
from stages.store.checksum import file_crc32c
from stages.store.conditional import ConditionalStore, PreconditionFailed


def upload_output(store: ConditionalStore, folder: str, source: Path) -> tuple[FileEntry, ...]:
    """Upload all files below `source` to the attempt's `folder`; entries are relative to it and sorted by path.

    Raises:
        StorageError: the store could not be written, or something else is there already.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return tuple(_upload_file(store, folder, path.relative_to(source).as_posix(), path) for path in files)


def _upload_file(store: ConditionalStore, folder: str, relative: str, file: Path) -> FileEntry:
    path = f"{folder}/{relative}"
    try:
        entry = store.upload(path, file)
    except PreconditionFailed:
        entry = _stored(store, path, file)
        if entry is None:
            raise
    return entry.model_copy(update={"path": relative})


def _stored(store: ConditionalStore, path: str, file: Path) -> FileEntry | None:
    """The entry of an upload that took effect although its answer was lost: the folder is this attempt's alone."""
    stored = next((listed for listed in store.list(path.rpartition("/")[0]) if listed.path == path), None)
    size, crc32c = file.stat().st_size, file_crc32c(file)
    if stored is None or (stored.size, store.checksum(path)) != (size, crc32c):
        return None
    return FileEntry(path=path, size=size, crc32c=crc32c, generation=stored.generation)
