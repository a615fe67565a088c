"""A store in a local folder: files written aside, then moved into place under a lock."""

import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stages.contract import FileEntry
from stages.errors import StorageError
from stages.store.checksum import CHUNK_BYTES, file_crc32c
from stages.store.conditional import CorruptObjectError, Listed, PreconditionFailed, StoredObject, object_parts
from stages.store.io_errors import io_errors

# A lock is held for a few system calls; only a stopped process or a hung disk holds one for this long.
LOCK_TIMEOUT_SECONDS = 30.0
NUM_LOCKS = 64
LOCKS_FOLDER = ".locks"
ASIDE_FOLDER = ".aside"
TIME_UNITS = (1, 10**3, 10**6, 10**9, 10**9)
"""Nanoseconds to which a file system may round times: from finest to coarsest."""


def _generation(stat: os.stat_result) -> str:
    """Not the inode too: it changes when a store is moved with `cp -a` or `rsync -a`, which keep times."""
    return str(stat.st_mtime_ns)


def _sync(path: Path) -> None:
    """Makes a file with its times, or a folder's entries, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    # Not `exist_ok`, which looks again: by then somebody may have removed what was there.
    with suppress(FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


class LocalStore:
    """Objects as files below `root`; a generation is the file's modification time, which each write moves on.

    Works between processes of one machine, and on network file systems whose `flock` does.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))
        self.uri = self.root.as_uri()

    def _file(self, path: str) -> Path:
        return self.root.joinpath(*object_parts(path))

    def get(self, path: str) -> StoredObject | None:
        with io_errors("read", self._file(path)):
            try:
                with self._file(path).open("rb") as file:
                    return StoredObject(file.read(), _generation(os.fstat(file.fileno())))
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[Listed]:
        with io_errors("list", self._file(prefix)):
            return sorted(self._walk(self._file(prefix)), key=lambda listed: listed.path)

    def _walk(self, folder: Path) -> Iterator[Listed]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_dir():
                yield from self._walk(Path(entry.path))
                continue
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue
            yield Listed(os.path.relpath(entry.path, self.root), stat.st_size, _generation(stat), stat.st_mtime)

    def create(self, path: str, data: bytes) -> str:
        with io_errors("write", self._file(path)), self._aside() as aside:
            _write(aside, data)
            return self._move(aside, path, None)

    def swap(self, path: str, data: bytes, generation: str) -> str:
        with io_errors("write", self._file(path)), self._aside() as aside:
            _write(aside, data)
            return self._move(aside, path, generation)

    def upload(self, path: str, source: Path) -> FileEntry:
        with io_errors(f"copy {source} to", self._file(path)), self._aside() as aside:
            crc32c = file_crc32c(source)
            _copy(source, aside)
            if file_crc32c(aside) != crc32c:
                raise StorageError(f"{source} changed while it was copied to {self._file(path)}; run again")
            # A stage reads its inputs in place: nobody may write to them.
            aside.chmod(0o444)
            size = aside.stat().st_size
            return FileEntry(path=path, size=size, crc32c=crc32c, generation=self._move(aside, path, None))

    def fetch(self, path: str, entry: FileEntry, target: Path) -> Path:
        file = self._file(path)
        with io_errors("read", file):
            try:
                crc32c = file_crc32c(file)
            except FileNotFoundError:
                raise CorruptObjectError(f"{file}: missing") from None
        if crc32c != entry.crc32c:
            raise CorruptObjectError(f"{file}: crc32c is {crc32c}, committed was {entry.crc32c}")
        return file

    def checksum(self, path: str) -> str | None:
        with io_errors("read", self._file(path)):
            try:
                return file_crc32c(self._file(path))
            except FileNotFoundError:
                return None

    def delete(self, path: str) -> None:
        with io_errors("delete", self._file(path)), self._lock(path):
            self._file(path).unlink(missing_ok=True)
        self._remove_empty_folders(self._file(path).parent)

    def _remove_empty_folders(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def location(self, path: str) -> str:
        return str(self._file(path))

    @contextmanager
    def _aside(self) -> Generator[Path]:
        """A new name on the store's own file system for a file that is not an object yet."""
        folder = self.root / ASIDE_FOLDER
        _make_folder(folder)
        aside = folder / uuid.uuid4().hex
        try:
            yield aside
        finally:
            aside.unlink(missing_ok=True)

    def _move(self, aside: Path, path: str, expected: str | None) -> str:
        """Gives a written file its name if the object still has the expected generation (None: does not exist)."""
        target = self._file(path)
        with self._lock(path):
            current = target.stat() if target.exists() else None
            if expected is None and current is not None:
                raise PreconditionFailed(f"{target}: exists already")
            if expected is not None and (current is None or _generation(current) != expected):
                raise PreconditionFailed(f"{target}: is not at generation {expected} any more")
            generation = _stamp(aside, current.st_mtime_ns if current else 0)
            _sync(aside)
            _place(aside, target)
        return generation

    @contextmanager
    def _lock(self, path: str) -> Generator[None]:
        """One of a fixed number of locks, by the object's path; the kernel frees it when the process dies."""
        folder = self.root / LOCKS_FOLDER
        _make_folder(folder)
        number = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4]) % NUM_LOCKS
        descriptor = os.open(folder / f"{number:02d}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait_for_lock(descriptor, folder / f"{number:02d}")
            yield
        finally:
            os.close(descriptor)


def _stamp(aside: Path, before: int) -> str:
    """Gives a file a time after `before`, in nanoseconds, and returns its generation.

    The kernel's own clock ticks in milliseconds, and a file system may keep no more than seconds.
    """
    modified = time.time_ns()
    for unit in TIME_UNITS:
        os.utime(aside, ns=(modified, modified))
        if aside.stat().st_mtime_ns > before:
            break
        modified = before + 2 * unit
    return _generation(aside.stat())


def _place(aside: Path, target: Path) -> None:
    """Renames a file, durably; a delete beside it may remove the folder, while it is empty, once it was made."""
    while True:
        try:
            _make_folder(target.parent)
            aside.replace(target)
        except FileNotFoundError:
            if aside.exists():
                continue
            raise
        _sync(target.parent)
        return


def _write(target: Path, data: bytes) -> None:
    with target.open("xb") as file:
        file.write(data)


def _copy(source: Path, target: Path) -> None:
    """Durable already, so that whoever names the file holds a lock for its times only."""
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())


def _wait_for_lock(descriptor: int, file: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StorageError(
                    f"{file}: held by another process for {LOCK_TIMEOUT_SECONDS:.0f} s; "
                    "look for a stopped process that uses this store"
                ) from None
            time.sleep(0.002)
