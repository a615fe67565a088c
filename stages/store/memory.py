"""A store in this process's memory, for tests and trials."""

import itertools
import threading
import time
import uuid
from pathlib import Path

from stages.contract import FileEntry
from stages.store.checksum import bytes_crc32c
from stages.store.conditional import CorruptObjectError, Listed, PreconditionFailed, StoredObject, object_parts
from stages.store.io_errors import io_errors


class MemoryStore:
    """Objects in a dictionary, guarded by one lock."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._objects: dict[str, StoredObject] = {}
        self._modified: dict[str, float] = {}
        self._generations = itertools.count(1)
        self._lock = threading.Lock()

    def get(self, path: str) -> StoredObject | None:
        object_parts(path)
        with self._lock:
            return self._objects.get(path)

    def list(self, prefix: str) -> list[Listed]:
        folder = "/".join(object_parts(prefix)) + "/"
        with self._lock:
            found = [(path, stored) for path, stored in self._objects.items() if path.startswith(folder)]
            return [Listed(p, len(stored.data), stored.generation, self._modified[p]) for p, stored in sorted(found)]

    def create(self, path: str, data: bytes) -> str:
        object_parts(path)
        with self._lock:
            if path in self._objects:
                raise PreconditionFailed(f"{self.location(path)}: exists already")
            return self._put(path, data)

    def swap(self, path: str, data: bytes, generation: str) -> str:
        with self._lock:
            current = self._objects.get(path)
            if current is None or current.generation != generation:
                raise PreconditionFailed(f"{self.location(path)}: is not at generation {generation} any more")
            return self._put(path, data)

    def _put(self, path: str, data: bytes) -> str:
        generation = str(next(self._generations))
        self._objects[path] = StoredObject(bytes(data), generation)
        self._modified[path] = time.time()
        return generation

    def upload(self, path: str, source: Path) -> FileEntry:
        with io_errors("read", source):
            data = source.read_bytes()
        return FileEntry(path=path, size=len(data), crc32c=bytes_crc32c(data), generation=self.create(path, data))

    def fetch(self, path: str, entry: FileEntry, target: Path) -> Path:
        stored = self.get(path)
        if stored is None:
            raise CorruptObjectError(f"{self.location(path)}: missing")
        if bytes_crc32c(stored.data) != entry.crc32c:
            raise CorruptObjectError(f"{self.location(path)}: crc32c differs from {entry.crc32c}")
        with io_errors("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
            partial.write_bytes(stored.data)
            return partial.replace(target)

    def checksum(self, path: str) -> str | None:
        stored = self.get(path)
        return None if stored is None else bytes_crc32c(stored.data)

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(path, None)

    def location(self, path: str) -> str:
        return f"{self.uri}/{path}"


_stores: dict[str, MemoryStore] = {}
_stores_lock = threading.Lock()


def open_memory(uri: str) -> MemoryStore:
    """The store of this name; one name is one store within the process."""
    with _stores_lock:
        return _stores.setdefault(uri, MemoryStore(uri))
