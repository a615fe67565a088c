"""Objects that are created once or swapped on their generation: the only writes that the store's protocol uses."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from stages.contract import FileEntry
from stages.errors import StorageError, UserError


@dataclass(frozen=True)
class StoredObject:
    """The bytes of an object and the generation that they belong to."""

    data: bytes
    generation: str


@dataclass(frozen=True)
class Listed:
    """One object of a listing.

    Attributes:
        path: relative to the store.
        size: in bytes.
        generation: opaque; another one after each write.
        modified: when it was last written, in seconds since 1970 by the store's clock.
    """

    path: str
    size: int
    generation: str
    modified: float


class PreconditionFailed(StorageError):  # noqa: N818
    """A create found the object, or a swap found another generation or none."""


class CorruptObjectError(StorageError):
    """A stored file is missing, or its bytes are not those that were committed."""


class ConditionalStore(Protocol):
    """Objects under one URI, strongly consistent.

    Paths are relative, with `/` between parts. Every method raises `StorageError` with the object's path, the cause and
    what to do; an error other than `PreconditionFailed` may come after the write took effect.
    """

    @property
    def uri(self) -> str:
        """`file:///folder`, `gs://bucket/prefix` or `memory://name`."""
        ...

    def get(self, path: str) -> StoredObject | None: ...

    def list(self, prefix: str) -> list[Listed]:
        """All objects below the folder `prefix`, at every depth, sorted by path."""
        ...

    def create(self, path: str, data: bytes) -> str:
        """Write an object that must not exist; returns its generation.

        Raises:
            PreconditionFailed: it exists.
        """
        ...

    def swap(self, path: str, data: bytes, generation: str) -> str:
        """Replace an object that must still have `generation`; returns the new one.

        Raises:
            PreconditionFailed: it has another generation, or does not exist.
        """
        ...

    def upload(self, path: str, source: Path) -> FileEntry:
        """Create an object from a local file, checked by crc32c; the entry's `path` is `path`.

        Raises:
            PreconditionFailed: it exists.
        """
        ...

    def fetch(self, path: str, entry: FileEntry, target: Path) -> Path:
        """A local file with the object's bytes, checked against `entry`; the store's own file when it is local.

        Raises:
            CorruptObjectError: the object is missing or differs from `entry`.
        """
        ...

    def checksum(self, path: str) -> str | None:
        """crc32c of the stored bytes, for a bucket as the service computed it; None if there is no object."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is no error."""
        ...

    def location(self, path: str) -> str:
        """Where other programs find the object: an absolute local path or a `gs://` URI."""
        ...


def object_parts(path: str) -> list[str]:
    """The parts of an object's path.

    Raises:
        UserError: it is not relative and plain.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path:
        raise UserError(f"'{path}' is no object path: expected parts joined by '/', none of them empty, '.' or '..'")
    return parts


# Back ends import this module, and each loads its own client library: they are loaded when first used.
def _open_local(uri: str) -> ConditionalStore:
    from stages.store.local import LocalStore

    return LocalStore(Path(unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri))


def _open_gcs(uri: str) -> ConditionalStore:
    from stages.store.gcs import GcsStore

    return GcsStore(uri)


def _open_memory(uri: str) -> ConditionalStore:
    from stages.store.memory import open_memory

    return open_memory(uri)


BACK_ENDS: dict[str, Callable[[str], ConditionalStore]] = {
    "": _open_local,
    "file": _open_local,
    "gs": _open_gcs,
    "memory": _open_memory,
}


def open_store(uri: str) -> ConditionalStore:
    """The store at a `file://`, `gs://` or `memory://` URI or a local path.

    Raises:
        UserError: the scheme is unknown, or its optional dependency is not installed.
    """
    scheme = uri.partition("://")[0] if "://" in uri else ""
    if scheme not in BACK_ENDS:
        raise UserError(f"store '{uri}': unknown scheme '{scheme}', expected a path, file://, gs:// or memory://")
    return BACK_ENDS[scheme](uri)
