"""Local files and folders as sources, by the sha256 of their content."""

import hashlib
import os
from pathlib import Path

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.remembered import file_sha256
from stages.store.io_errors import io_errors


def folder_sha256(folder: Path) -> str:
    """Digest of a folder's sorted relative paths and file digests, as 64 hexadecimal digits.

    Raises:
        UserError: it holds no file, or something else than files and folders.
        StorageError: a file cannot be read.
    """
    total = hashlib.sha256()
    with io_errors("read", folder):
        files = sorted((path.relative_to(folder).as_posix(), path) for path in _walk(folder))
    if not files:
        raise UserError(f"source {folder}: the folder holds no file")
    for relative, path in files:
        # Neither part can hold a zero byte, so that no two folders read the same.
        total.update(os.fsencode(relative) + b"\0" + file_sha256(path).encode() + b"\0")
    return total.hexdigest()


def _walk(folder: Path) -> list[Path]:
    files: list[Path] = []
    for entry in folder.iterdir():
        if entry.name == "__pycache__":
            continue  # written by whoever imports what lies beside it
        if entry.is_dir() and entry.is_symlink():
            raise UserError(f"source {folder}: {entry.name} is a link to a folder, put the folder itself there")
        if not entry.is_dir() and not entry.is_file():
            raise UserError(f"source {folder}: {entry.name} is neither a file nor a folder, or a link to nothing")
        files += _walk(entry) if entry.is_dir() else [entry]
    return files


def absolute_path(path: str, base: Path) -> str:
    """The path, seen from `base` when it is relative; `~` is the home folder."""
    # Unlike a Path's, this leaves the home of an unknown user as it is written.
    return os.path.abspath(base / os.path.expanduser(path))  # noqa: PTH111


class LocalFiles:
    """Resolves paths."""

    def check(self, uri: str) -> None:
        """Raises `UserError` when the path cannot be one."""
        if "\0" in uri or not uri.strip():
            raise UserError(f"source '{uri}': expected the path of a file or folder")

    def digest(self, uri: str) -> str:
        """Digest of a file's bytes, or of a folder's sorted relative paths and file digests.

        Raises:
            UserError: there is no such file, or the folder holds none.
        """
        path = Path(uri)
        if path.is_file():
            return f"sha256:{file_sha256(path)}"
        if path.is_dir():
            return f"sha256:{folder_sha256(path)}"
        raise UserError(f"source {path}: no such file or folder")

    def open(self, source: SourceRef, cache: Path) -> Path:
        """The path itself, after its content was compared with the digest.

        Raises:
            UserError: the content is another one.
        """
        found = self.digest(source.uri)
        if found != source.digest:
            raise UserError(
                f"source {source.uri}: its content changed after the plan was made "
                f"({source.digest[:23]}… then, {found[:23]}… now); plan again"
            )
        return Path(source.uri)
